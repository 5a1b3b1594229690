"""Commands of operators: they act on servers, jobs, limits and holds."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from controlplane.client import views
from controlplane.client.asynchronous import Client
from controlplane.client.command_parts import call_each, parse_json, show_one
from controlplane.client.limits import OPTIONAL
from controlplane.client.output import Output
from controlplane.client.short_ids import find_execution, find_hold, find_job, find_server, find_trigger

HELD = ("action", "tag", "limit", "queue", "namespace", "execution", "trigger")


def set_limit(client: Client, given: Namespace, out: Output) -> int:
    names = ("running", "starts", "per_seconds", *OPTIONAL, "note", "namespace")
    rule = client.set_limit(given.pattern, **{name: getattr(given, name) for name in names})
    out.document(rule) if out.is_json else out.line(rule["pattern"])
    return 0


def delete_limit(client: Client, given: Namespace, out: Output) -> int:
    client.delete_limit(given.pattern, note=given.note, namespace=given.namespace)
    return 0


def act(client: Client, given: Namespace, out: Output) -> int:
    """Act on each target and print the result. If one target is refused, continue with the others."""
    calls: dict[str, Callable[..., Any]] = {
        "cancel": client.cancel, "resubmit": client.resubmit, "fail": client.fail, "rerun": client.rerun_execution,
        "restart": client.restart_execution, "cancel-execution": client.cancel_execution, "evaluate": client.evaluate,
        "seal": client.seal_execution,
    }  # fmt: skip
    finders = {"job": find_job, "execution": find_execution, "trigger": find_trigger}
    kind = next(name for name in finders if hasattr(given, name))
    targets = [finders[kind](client, target) for target in getattr(given, kind)]
    if getattr(given, "inputs", None) is not None:
        given.inputs = parse_json(given.inputs, "--inputs")
    names = {"fail": ("reason",), "restart": ("from_step", "inputs")}.get(given.command, ())
    more = {name: value for name in names if (value := getattr(given, name)) is not None}
    return call_each(targets, lambda target: calls[given.command](target, note=given.note, **more), out)


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
    return call_each(jobs, lambda job: client.change(job, note=given.note, **changes), out)


def operate(client: Client, given: Namespace, out: Output) -> int:
    servers = [find_server(client, server) for server in given.server]
    more = {"deadline_seconds": given.deadline} if given.command == "drain" else {}
    if given.command in ("cordon", "drain"):
        more["duration_seconds"] = given.seconds
    return call_each(servers, lambda server: getattr(client, given.command)(server, given.note, **more), out)


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
    return show_one(held, views.hold, out)


def release_hold(client: Client, given: Namespace, out: Output) -> int:
    id = find_hold(client, given.hold)
    client.release_hold(id, given.note)
    out.document({"released": id}) if out.is_json else out.line(f"released: {id}")
    return 0
