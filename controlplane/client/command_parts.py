"""Parts of commands: their targets, their files, and calls for each target."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from controlplane.agent.clean_text import reason
from controlplane.client import views
from controlplane.client.asynchronous import Client
from controlplane.client.failures import REFUSED, complain, explain
from controlplane.client.output import Output
from controlplane.client.session import Refused

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


def find_by_end(text: str, kind: str, listing: Callable[..., Iterator[Any]]) -> str:
    """Return the id that ends with `text`, as pages show it. Search the latest 500 objects. Raise ValueError."""
    if not SHORT_ID.fullmatch(text):
        return text  # a whole id, or a text for the control plane to refuse
    latest = islice(listing(page=LARGEST_PAGE), LARGEST_PAGE)
    found = [str(row["id"]) for row in latest if row["id"].endswith(text.lower())]
    if len(found) != 1:
        ids = f"{len(found)} ids end" if found else "No id ends"
        raise ValueError(f"{ids} with {text!r} among the latest {LARGEST_PAGE} {kind}: give the whole id")
    return found[0]


def find_server(client: Client, text: str) -> str:
    """Return the id of a server, given its id, or the name of exactly one alive server. Raise ValueError."""
    try:
        return str(UUID(text))
    except ValueError:
        named = [server for server in client.servers(search=text) if server["name"] == text]
    alive = [server["id"] for server in named if server["state"] in ALIVE]
    if not alive:
        raise ValueError(f"No alive server is called {text!r}. For a server that has ended, give its id")
    if len(alive) > 1:
        raise ValueError(f"{len(alive)} alive servers are called {text!r}: give the id of one")
    return alive[0]


def read_json(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {reason(error)}") from None
    return parse_json(text, "Standard input" if file == "-" else file)


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None


def objects(items: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for item in items:
        if not isinstance(item, dict):
            raise ValueError(f"{json.dumps(item)[:60]} is not a JSON object")
        yield item


def call_each(targets: list[str], call: Callable[[str], Any], out: Output) -> int:
    code = 0
    for target in targets:
        try:
            item = call(target)
        except Refused as refused:
            code = complain(f"{target}: {explain(refused)}", REFUSED)
        else:
            out.document(item) if out.is_json else out.line(views.brief(item, target))
    return code


def show_one(item: Any, view: Callable[[Any, Output], None], out: Output) -> int:
    out.document(item) if out.is_json else view(item, out)
    return 0
