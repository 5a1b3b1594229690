"""Why a job waits: as a table, and as one sentence for a person who waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import Any

from controlplane.client.asynchronous import Client
from controlplane.client.failures import print_for_people
from controlplane.client.output import Output
from controlplane.client.session import ControlPlaneError
from controlplane.client.views import time_text

EXPLAINED_AFTER = 5.0
"""Seconds after which the reason is printed for a person who waits for a job."""


def placement(item: Mapping[str, Any], out: Output) -> None:
    rows = [[one["server"]["name"], "eligible", f"load {one['load']:g}"] for one in item["eligible"]]
    rows += [[one["server"]["name"], one["filter"], one["detail"]] for one in workers_ruled_out(item)]
    if begins := item["waiting_for"]:
        out.fields({"waits": waiting_words(begins)}, ("waits",))
    out.table(["server", "filter", "detail"], rows)
    if others := len(item["ruled_out"]) - len(workers_ruled_out(item)):
        out.line(f"Servers of other types: {others}")


def workers_ruled_out(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the workers that may not run the job. Servers of other types never run one."""
    return [one for one in item["ruled_out"] if one["filter"] != "type"]


def waiting_words(begins: Mapping[str, Any]) -> str:
    """Return what a job waits for, in words."""
    match begins["what"]:
        case "hold":
            return f"for the hold {begins['hold']}"
        case "limit":
            return f"for a slot of {begins['limit']}"
        case "max_parallel":
            return f"for other items of {begins['step']}"
        case "stop":
            return f"until {begins['server']['name']} has stopped it, or must have"
    return f"until {time_text(begins['until'])}"


def describe_wait(item: Mapping[str, Any]) -> str:
    """Return in one sentence why a job waits. `item` is its placement."""
    if begins := item["waiting_for"]:
        return f"The job waits {waiting_words(begins)}."
    if eligible := len(item["eligible"]):
        return f"The job waits for its turn. Workers that may take it: {eligible}."
    workers = workers_ruled_out(item)
    if full := sum(one["filter"] == "capacity" for one in workers):
        return f"The job waits for a free slot. Workers that may take it then: {full}."
    if not workers:
        return "The job waits because no worker is running."
    [(reason, count)] = Counter(one["detail"] for one in workers).most_common(1)
    if len(workers) == 1:
        return f"The job waits. The only worker, {workers[0]['server']['name']}, may not take it: {reason}."
    return f"The job waits, because none of {len(workers)} workers may take it. {count} of them: {reason}."


@contextmanager
def explained_wait(client: Client, jobs: Sequence[str]) -> Iterator[None]:
    """If a single job still waits after EXPLAINED_AFTER seconds of this block, print why, on stderr."""
    if len(jobs) != 1:
        yield
        return
    timer = Timer(EXPLAINED_AFTER, explain_wait, (client, *jobs))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join(1)


def explain_wait(client: Client, job: str) -> None:
    try:
        item = client.placement(job)
    except ControlPlaneError:  # it has begun, or this token may not see its placement
        return
    print_for_people(f"{describe_wait(item)} More: controlplane placement {job}")
