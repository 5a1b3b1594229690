"""Find objects by the end of their id, as the pages show it, and servers also by their name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from uuid import UUID

from controlplane.client.asynchronous import Client

ALIVE = ("CREATED", "RUNNING", "MAINTENANCE")
LARGEST_PAGE = 500
SHORT_ID = re.compile("[0-9a-fA-F]{4,12}")


def find_job(client: Client, text: str) -> str:
    return find_by_end(text, "jobs", client.jobs)


def find_execution(client: Client, text: str) -> str:
    return find_by_end(text, "executions", client.executions)


def find_trigger(client: Client, text: str) -> str:
    return find_by_end(text, "triggers", client.triggers)


def find_batch(client: Client, text: str) -> str:
    return find_by_end(text, "batches", client.batches)


def find_hold(client: Client, text: str) -> str:
    return find_by_end(text, "holds", client.holds)


def find_of_operation(client: Client, operation: str, text: str) -> str:
    """Return the id of an item of a bulk action, given its end. `operation`, like `cancel_job`, ends with the kind."""
    finders = {"server": find_server, "job": find_job, "execution": find_execution, "trigger": find_trigger}
    find = finders.get(operation.rpartition("_")[2])
    return find(client, text) if find else text


def find_by_end(text: str, kind: str, listing: Callable[..., Iterator[Any]]) -> str:
    """Return the id that ends with `text`, among the latest 500 objects. Raise ValueError unless exactly one does."""
    if not SHORT_ID.fullmatch(text):
        return str(whole_id(text))
    latest = islice(listing(page=LARGEST_PAGE), LARGEST_PAGE)
    found = [str(row["id"]) for row in latest if row["id"].endswith(text.lower())]
    if len(found) != 1:
        ids = f"{len(found)} ids end" if found else "No id ends"
        raise ValueError(f"{ids} with {text!r} among the latest {LARGEST_PAGE} {kind}: give the whole id")
    return found[0]


def whole_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an id: give a whole id, or its last 4 to 12 characters") from None


def find_server(client: Client, text: str) -> str:
    """Return the id of a server, given its id, the end of its id, or the name of exactly one alive server.

    Raise ValueError.
    """
    return _find_server(client, text, or_latest=False)


def find_server_to_show(client: Client, text: str) -> str:
    """Return the id of a server as `find_server` does. If none alive has the name, return the latest that had it."""
    return _find_server(client, text, or_latest=True)


def _find_server(client: Client, text: str, *, or_latest: bool) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        named = [server for server in client.servers(search=text) if server["name"] == text]
    alive = [server["id"] for server in named if server["state"] in ALIVE]
    if len(alive) > 1:
        raise ValueError(f"{len(alive)} alive servers are called {text!r}: give the id of one")
    if alive:
        return alive[0]
    if named and or_latest:
        return named[0]["id"]
    if named:
        state, id = named[0]["state"], named[0]["id"]
        raise ValueError(f"No alive server is called {text!r}. The latest with this name is {state}: give its id {id}")
    if SHORT_ID.fullmatch(text):
        return find_by_end(text, "servers", client.servers)
    raise ValueError(f"No server is called {text!r}: `controlplane servers` lists them")
