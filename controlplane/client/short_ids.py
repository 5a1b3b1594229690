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
        return text  # a whole id, or a text for the control plane to refuse
    latest = islice(listing(page=LARGEST_PAGE), LARGEST_PAGE)
    found = [str(row["id"]) for row in latest if row["id"].endswith(text.lower())]
    if len(found) != 1:
        ids = f"{len(found)} ids end" if found else "No id ends"
        raise ValueError(f"{ids} with {text!r} among the latest {LARGEST_PAGE} {kind}: give the whole id")
    return found[0]


def find_server(client: Client, text: str) -> str:
    """Return the id of a server, given its id, the end of its id, or the name of exactly one alive server.

    Raise ValueError.
    """
    try:
        return str(UUID(text))
    except ValueError:
        named = [server for server in client.servers(search=text) if server["name"] == text]
    alive = [server["id"] for server in named if server["state"] in ALIVE]
    if not alive and SHORT_ID.fullmatch(text):
        return find_by_end(text, "servers", client.servers)
    if not alive:
        raise ValueError(f"No alive server is called {text!r}. For a server that has ended, give its id")
    if len(alive) > 1:
        raise ValueError(f"{len(alive)} alive servers are called {text!r}: give the id of one")
    return alive[0]
