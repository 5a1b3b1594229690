"""Commands of the client. Each function runs one command and returns its exit code."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from controlplane.client import placement_views, views
from controlplane.client.answers import Execution, Job
from controlplane.client.asynchronous import Client
from controlplane.client.command_parts import objects, parse_json, read_json, show_one
from controlplane.client.output import Output
from controlplane.client.placement_views import explained_wait
from controlplane.client.short_ids import (
    LARGEST_PAGE,
    find_batch,
    find_execution,
    find_job,
    find_of_operation,
    find_server_to_show,
    find_trigger,
)


def list_servers(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.servers, given, out, views.SERVERS, "cluster", "state", "type", "tag", "search")


def list_jobs(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.jobs, given, out, views.JOBS, "state", "kind", "key", "tag", "flag")


def list_executions(client: Client, given: Namespace, out: Output) -> int:
    given.trigger = given.trigger and find_trigger(client, given.trigger)
    return _list(client.executions, given, out, views.EXECUTIONS, "state", "name", "key", "trigger")


def list_triggers(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.triggers, given, out, views.TRIGGERS)


def list_queues(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.queues, given, out, views.QUEUES, "tag")


def list_limits(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.limits, given, out, views.LIMITS)


def list_holds(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.holds, given, out, views.HOLDS)


def list_batches(client: Client, given: Namespace, out: Output) -> int:
    page = min(given.limit or LARGEST_PAGE, LARGEST_PAGE)
    found = client.batches(state=given.state, operation=given.operation, page=page)
    out.listed(islice(found, given.limit or None), views.BATCHES)
    return 0


def list_events(client: Client, given: Namespace, out: Output) -> int:
    if given.server and (given.follow or given.after):
        raise ValueError("--follow and --after are for the events of everything: leave the server out")
    if given.server:
        out.listed(client.server_events(find_server_to_show(client, given.server)), views.EVENTS)
        return 0
    for event in client.events(given.after, follow=given.follow):
        out.document(event) if out.is_json else out.line(views.event(event))
    return 0


def show_server(client: Client, given: Namespace, out: Output) -> int:
    return show_one(client.server(find_server_to_show(client, given.server)), views.server, out)


def show_job(client: Client, given: Namespace, out: Output) -> int:
    return show_one(client.job(find_job(client, given.job)), views.job, out)


def show_placement(client: Client, given: Namespace, out: Output) -> int:
    return show_one(client.placement(find_job(client, given.job)), placement_views.placement, out)


def show_execution(client: Client, given: Namespace, out: Output) -> int:
    return show_one(client.execution(find_execution(client, given.execution)), views.execution, out)


def show_batch(client: Client, given: Namespace, out: Output) -> int:
    return show_one(client.batch(find_batch(client, given.batch)), views.batch, out)


def begin_batch(client: Client, given: Namespace, out: Output) -> int:
    """Start a bulk action on these ids, or on all objects that a filter matches.

    Raise ValueError if neither is given, so that no command acts on all objects by mistake.
    """
    if bool(given.id) == bool(given.filter):
        raise ValueError("Give either ids or --filter NAME=VALUE (may be repeated)")
    words = [text.partition("=") for text in given.filter or []]
    if wrong := [name for name, equals, _ in words if not equals]:
        raise ValueError(f"--filter {wrong[0]}: write NAME=VALUE, like state=FAILED")
    filter = {name: value for name, _, value in words}
    if len(filter) < len(words):
        raise ValueError("--filter: give each NAME only once")
    options: Any = {
        name: getattr(given, name)
        for name in ("force", "reason", "deadline_seconds", "duration_seconds")
        if getattr(given, name) is not None
    }
    if given.changes is not None:
        options["changes"] = parse_json(given.changes, "--changes")
    ids = [find_of_operation(client, given.operation, id) for id in given.id]
    chosen: Any = {"ids": ids} if ids else {"filter": filter}
    begun = client.begin_batch(
        given.operation, given.note, namespace=given.namespace, key=given.key, **chosen, **options
    )
    if not given.wait:
        out.document(begun) if out.is_json else out.line(begun["id"])
        return 0
    ended = client.wait_batch(begun, given.timeout)
    show_one(ended, views.batch, out)
    return 0 if ended["state"] == "COMPLETED" and not ended["refused"] else 1


def stop_batch(client: Client, given: Namespace, out: Output) -> int:
    stopped = client.stop_batch(find_batch(client, given.batch), given.note)
    out.document(stopped) if out.is_json else out.line(f"{stopped['id']} {stopped['state']}")
    return 0


def show_instance(client: Client, given: Namespace, out: Output) -> int:
    return show_one(client.instance(cluster=given.cluster), views.instance, out)


def show_logs(client: Client, given: Namespace, out: Output) -> int:
    job = find_job(client, given.job)
    with explained_wait(client, [job] if given.follow else []):
        _print_logs(client, job, out, follow=given.follow, attempt=given.attempt)
    return 0


def submit(client: Client, given: Namespace, out: Output) -> int:
    ways = [bool(given.script), bool(given.callable), bool(given.handler), bool(given.file)]
    if sum(ways) != 1:
        raise ValueError("Give exactly one of: a command, --callable, --handler, --file")
    names = ("tags", "name", "priority", "timeout_seconds", "max_retries", "key", "unmatched", "on_worker_lost")
    more = ("require_worker", "worker_slots")
    options = {name: getattr(given, name) for name in (*names, *more) if getattr(given, name) is not None}
    if given.payload is not None:
        options["payload"] = parse_json(given.payload, "--payload")
    if given.limits:
        options["limits"] = given.limits
    if given.unique is not None:
        options["unique"] = {"key": given.unique}
    if given.file:
        read = read_json(given.file)
        jobs = objects(read if isinstance(read, list) else [read])
        submitted = client.submit_many([{**job, **options} for job in jobs], namespace=given.namespace)
    else:
        submitted = [client.submit(describe_action(given), namespace=given.namespace, **options)]
    if not (given.wait or given.follow):
        for job in submitted:
            out.document(job) if out.is_json else out.line(job["id"])
        return 0
    ids = [job["id"] for job in submitted]
    with explained_wait(client, ids):
        if given.follow and len(ids) == 1 and not out.is_json:
            out.line(ids[0])
            _print_logs(client, ids[0], out, follow=True)
        return _wait(client, ids, given.timeout, out)


def execute(client: Client, given: Namespace, out: Output) -> int:
    (definition,) = objects([read_json(given.file)])
    given_fields = {"key": given.key, "limits": given.limits}
    definition |= {name: value for name, value in given_fields.items() if value is not None}
    begun = client.submit_execution(**{"name": None, "steps": [], **definition}, namespace=given.namespace)
    if not given.wait:
        out.document(begun) if out.is_json else out.line(begun["id"])
        return 0
    ended = client.wait_execution(begun, given.timeout, progress=not out.is_json)
    show_one(ended, views.execution, out)
    return exit_code(ended)


def send_signal(client: Client, given: Namespace, out: Output) -> int:
    body = None if given.body is None else parse_json(given.body, "--body")
    sent = client.send_signal(given.name, body, key=given.key, namespace=given.namespace)
    out.document(sent) if out.is_json else out.line(sent["id"])
    return 0


def answer(client: Client, given: Namespace, out: Output) -> int:
    values = {} if given.values is None else parse_json(given.values, "--values")
    execution = find_execution(client, given.execution)
    job = client.answer_step(execution, given.step, given.choice, values, given.note)
    out.document(job) if out.is_json else out.line(f"{given.step} {job['state']}")
    return 0


def wait(client: Client, given: Namespace, out: Output) -> int:
    jobs = [find_job(client, job) for job in given.job]
    with explained_wait(client, jobs):
        return _wait(client, jobs, given.timeout, out)


def describe_action(given: Namespace) -> dict[str, Any]:
    if given.callable:
        return {"type": "callable", "path": given.callable}
    if given.handler:
        return {"type": "handler", "name": given.handler}
    words = given.script[1:] if given.script[0] == "--" else given.script
    if not words:
        raise ValueError("Give the command to run")
    return {"type": "script", "command": words[0] if len(words) == 1 else words}


def exit_code(ended: Job | Execution) -> int:
    return 0 if ended["state"] == "COMPLETED" else 1


def _list(
    call: Callable[..., Iterator[Any]], given: Namespace, out: Output, columns: dict[str, Any], *filters: str
) -> int:
    page = min(given.limit or LARGEST_PAGE, LARGEST_PAGE)
    items = call(**{name: getattr(given, name) for name in (*filters, "namespace")}, page=page)
    out.listed(islice(items, given.limit or None), columns)
    return 0


def _wait(client: Client, jobs: list[str], timeout: float | None, out: Output) -> int:
    code = 0
    for job in client.as_ended(jobs, timeout):
        out.document(job) if out.is_json else out.line(views.outcome(job))
        code = max(code, exit_code(job))
    return code


def _print_logs(client: Client, job: str, out: Output, *, follow: bool, attempt: int | None = None) -> None:
    for line in client.logs(job, follow=follow, attempt=attempt):
        out.document(line) if out.is_json else out.line(line["line"])
