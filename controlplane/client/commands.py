"""Commands of the client. Each function runs one command and returns its exit code."""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from controlplane.agent.clean_text import reason
from controlplane.client import views
from controlplane.client.answers import Execution, Job
from controlplane.client.asynchronous import Client
from controlplane.client.failures import REFUSED, complain, explain
from controlplane.client.output import Output
from controlplane.client.session import Refused

ALIVE = ("CREATED", "RUNNING", "MAINTENANCE")
LARGEST_PAGE = 500
HELD = ("action", "tag", "limit", "queue", "namespace", "execution", "trigger")
SHORT_ID = re.compile("[0-9a-fA-F]{4,12}")


def list_servers(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.servers, given, out, views.SERVERS, "cluster", "state", "type", "tag", "search")


def list_jobs(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.jobs, given, out, views.JOBS, "state", "kind", "key", "tag", "flag")


def list_executions(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.executions, given, out, views.EXECUTIONS, "state", "name", "key", "trigger")


def list_triggers(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.triggers, given, out, views.TRIGGERS)


def list_queues(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.queues, given, out, views.QUEUES, "tag")


def list_limits(client: Client, given: Namespace, out: Output) -> int:
    return _list(client.limits, given, out, views.LIMITS)


def set_limit(client: Client, given: Namespace, out: Output) -> int:
    names = ("running", "starts", "per_seconds", "note", "namespace")
    rule = client.set_limit(given.pattern, **{name: getattr(given, name) for name in names})
    out.document(rule) if out.is_json else out.line(rule["pattern"])
    return 0


def delete_limit(client: Client, given: Namespace, out: Output) -> int:
    client.delete_limit(given.pattern, note=given.note, namespace=given.namespace)
    return 0


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
        out.listed(client.server_events(find_server(client, given.server)), views.EVENTS)
        return 0
    for event in client.events(given.after, follow=given.follow):
        out.document(event) if out.is_json else out.line(views.event(event))
    return 0


def show_server(client: Client, given: Namespace, out: Output) -> int:
    return _show(client.server(find_server(client, given.server)), views.server, out)


def show_job(client: Client, given: Namespace, out: Output) -> int:
    return _show(client.job(find_job(client, given.job)), views.job, out)


def show_placement(client: Client, given: Namespace, out: Output) -> int:
    return _show(client.placement(find_job(client, given.job)), views.placement, out)


def show_execution(client: Client, given: Namespace, out: Output) -> int:
    return _show(client.execution(find_execution(client, given.execution)), views.execution, out)


def show_batch(client: Client, given: Namespace, out: Output) -> int:
    return _show(client.batch(find_batch(client, given.batch)), views.batch, out)


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
    chosen: Any = {"ids": given.id} if given.id else {"filter": filter}
    begun = client.begin_batch(
        given.operation, given.note, namespace=given.namespace, key=given.key, **chosen, **options
    )
    if not given.wait:
        out.document(begun) if out.is_json else out.line(begun["id"])
        return 0
    ended = client.wait_batch(begun, given.timeout)
    _show(ended, views.batch, out)
    return 0 if ended["state"] == "COMPLETED" and not ended["refused"] else 1


def stop_batch(client: Client, given: Namespace, out: Output) -> int:
    stopped = client.stop_batch(find_batch(client, given.batch), given.note)
    out.document(stopped) if out.is_json else out.line(f"{stopped['id']} {stopped['state']}")
    return 0


def show_instance(client: Client, given: Namespace, out: Output) -> int:
    return _show(client.instance(cluster=given.cluster), views.instance, out)


def show_logs(client: Client, given: Namespace, out: Output) -> int:
    _print_logs(client, find_job(client, given.job), out, follow=given.follow, attempt=given.attempt)
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
    if given.follow and len(submitted) == 1 and not out.is_json:
        out.line(submitted[0]["id"])
        _print_logs(client, submitted[0]["id"], out, follow=True)
    if not (given.wait or given.follow):
        for job in submitted:
            out.document(job) if out.is_json else out.line(job["id"])
        return 0
    return _wait(client, [job["id"] for job in submitted], given.timeout, out)


def execute(client: Client, given: Namespace, out: Output) -> int:
    (definition,) = objects([read_json(given.file)])
    if given.key is not None:
        definition["key"] = given.key
    begun = client.submit_execution(**{"name": None, "steps": [], **definition}, namespace=given.namespace)
    if not given.wait:
        out.document(begun) if out.is_json else out.line(begun["id"])
        return 0
    ended = client.wait_execution(begun, given.timeout)
    _show(ended, views.execution, out)
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
    return _wait(client, [find_job(client, job) for job in given.job], given.timeout, out)


def act(client: Client, given: Namespace, out: Output) -> int:
    """Act on each target and print the result. If one target is refused, continue with the others."""
    calls: dict[str, Callable[..., Any]] = {
        "cancel": client.cancel, "resubmit": client.resubmit, "fail": client.fail, "rerun": client.rerun_execution,
        "restart": client.restart_execution, "cancel-execution": client.cancel_execution, "evaluate": client.evaluate,
    }  # fmt: skip
    finders = {"job": find_job, "execution": find_execution, "trigger": find_trigger}
    kind = next(name for name in finders if hasattr(given, name))
    targets = [finders[kind](client, target) for target in getattr(given, kind)]
    if getattr(given, "inputs", None) is not None:
        given.inputs = parse_json(given.inputs, "--inputs")
    names = {"fail": ("reason",), "restart": ("from_step", "inputs")}.get(given.command, ())
    more = {name: value for name in names if (value := getattr(given, name)) is not None}
    return _each(targets, lambda target: calls[given.command](target, note=given.note, **more), out)


def change(client: Client, given: Namespace, out: Output) -> int:
    """Change fields of each waiting job and print the result. If one job is refused, continue with the others."""
    names = ("priority", "tags", "timeout_seconds", "max_retries")
    changes: Any = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if given.payload is not None:
        changes["payload"] = parse_json(given.payload, "--payload")
    if given.run_now or given.available_at:
        changes["available_at"] = None if given.run_now else given.available_at
    if not changes:
        raise ValueError("Give at least one option, like --priority 10 or --run-now")
    jobs = [find_job(client, job) for job in given.job]
    return _each(jobs, lambda job: client.change(job, note=given.note, **changes), out)


def operate(client: Client, given: Namespace, out: Output) -> int:
    servers = [find_server(client, server) for server in given.server]
    more = {"deadline_seconds": given.deadline} if given.command == "drain" else {}
    if given.command in ("cordon", "drain"):
        more["duration_seconds"] = given.seconds
    return _each(servers, lambda server: getattr(client, given.command)(server, given.note, **more), out)


def maintain(client: Client, given: Namespace, out: Output) -> int:
    is_entered = given.way == "enter"
    answer = (
        client.enter_maintenance(given.note, cluster=given.cluster, duration_seconds=given.seconds)
        if is_entered
        else client.exit_maintenance(given.note, cluster=given.cluster)
    )
    out.document(answer) if out.is_json else out.line(
        "in maintenance" if answer["maintenance"] else "maintenance has ended"
    )
    return 0


def release_brake(client: Client, given: Namespace, out: Output) -> int:
    released = client.release_brake(given.note, cluster=given.cluster, namespace=given.namespace)
    out.document({"released": released}) if out.is_json else out.line(f"released: {', '.join(released)}")
    return 0


def hold(client: Client, given: Namespace, out: Output) -> int:
    """Hold work of one kind. Raise ValueError unless exactly one option names what is held."""
    named = [(kind, getattr(given, kind)) for kind in HELD if getattr(given, kind) is not None]
    if len(named) != 1:
        raise ValueError(f"Give exactly one of {', '.join(f'--{kind}' for kind in HELD)}")
    [(kind, value)] = named
    finders = {"execution": find_execution, "trigger": find_trigger}
    of = {kind: finders[kind](client, value) if kind in finders else value}
    mode: Any = "refuse" if given.refuse else "pause"
    held = client.hold(of, mode=mode, duration_seconds=given.seconds, note=given.note, namespace=given.within)
    return _show(held, views.hold, out)


def release_hold(client: Client, given: Namespace, out: Output) -> int:
    id = find_by_end(given.hold, "holds", client.holds)
    client.release_hold(id, given.note)
    out.document({"released": id}) if out.is_json else out.line(f"released: {id}")
    return 0


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


def describe_action(given: Namespace) -> dict[str, Any]:
    if given.callable:
        return {"type": "callable", "path": given.callable}
    if given.handler:
        return {"type": "handler", "name": given.handler}
    words = given.script[1:] if given.script[0] == "--" else given.script
    if not words:
        raise ValueError("Give the command to run")
    return {"type": "script", "command": words[0] if len(words) == 1 else words}


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


def exit_code(ended: Job | Execution) -> int:
    return 0 if ended["state"] == "COMPLETED" else 1


def _list(
    call: Callable[..., Iterator[Any]], given: Namespace, out: Output, columns: dict[str, Any], *filters: str
) -> int:
    page = min(given.limit or LARGEST_PAGE, LARGEST_PAGE)
    items = call(**{name: getattr(given, name) for name in (*filters, "namespace")}, page=page)
    out.listed(islice(items, given.limit or None), columns)
    return 0


def _show(item: Any, view: Callable[[Any, Output], None], out: Output) -> int:
    out.document(item) if out.is_json else view(item, out)
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


def _each(targets: list[str], call: Callable[[str], Any], out: Output) -> int:
    code = 0
    for target in targets:
        try:
            item = call(target)
        except Refused as refused:
            code = complain(f"{target}: {explain(refused)}", REFUSED)
        else:
            out.document(item) if out.is_json else out.line(views.brief(item, target))
    return code
