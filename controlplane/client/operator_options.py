"""Commands of operators and their options: actions on jobs, executions, servers, limits, holds and batches."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from controlplane.agent.durations import duration
from controlplane.agent.whole_numbers import integer, whole
from controlplane.client import commands, operator_commands
from controlplane.client.backfill_commands import add_backfills
from controlplane.client.limits import QUOTAS
from controlplane.client.shared_options import AddCommand, add_namespace, add_note, add_wait

OF_EXECUTIONS = ("cancel-execution", "rerun", "restart", "seal")


def add_operator_commands(command: AddCommand) -> None:
    _add_actions(command)
    _add_changes(command)
    _add_server_actions(command)
    _add_holds(command)
    add_backfills(command)
    add = command("release-brake", operator_commands.release_brake, "disconnect the servers that the brake holds")
    add("--cluster", help="only this cluster (default: all)")
    add("--namespace", help="only this namespace (default: all)")
    add_note(add, required=True)


def _add_actions(command: AddCommand) -> None:
    for name, help in {
        "cancel": "cancel jobs",
        "resubmit": "take live jobs from their workers, or submit ended ones again",
        "fail": "fail jobs permanently",
        "cancel-execution": "cancel executions with all their steps",
        "rerun": "run executions again from their beginning",
        "restart": "run executions again from the failed steps, and keep completed ones",
        "seal": "seal an open execution, so that it can end",
        "evaluate": "evaluate triggers now",
    }.items():
        target = {"evaluate": "triggers"}.get(name, "executions" if name in OF_EXECUTIONS else "jobs")
        add = command(name, operator_commands.act, help, target)
        add_note(add)
        if name == "restart":
            add("--from-step", metavar="KEY", help="also run this step and its dependents again")
            add("--inputs", metavar="JSON", help="inputs of the new execution")
        if name == "fail":
            add("--reason", default="", help="message of the job's error (default: the note)")


def _add_changes(command: AddCommand) -> None:
    add = command("change", operator_commands.change, "change fields of waiting jobs", "jobs")
    add("--priority", type=integer, metavar="N", help="-1000 to 1000, higher first")
    add("--run-now", action="store_true", help="let them start now, whatever their available_at is")
    add("--available-at", metavar="TIME", help="let them start at this time, like 2030-01-31T08:00:00Z")
    add("--tag", action="append", dest="tags", metavar="TAG", help="tag that the worker must have; may be repeated")
    add("--timeout-seconds", type=duration, metavar="DURATION", help="timeout of each attempt")
    add("--max-retries", type=whole, metavar="N", help="number of retries after an error of its code")
    add("--payload", metavar="JSON", help="payload for the code")
    add_note(add)


def _add_server_actions(command: AddCommand) -> None:
    for name, help in {
        "cordon": "give servers no new work",
        "uncordon": "give servers work again",
        "drain": "give servers no new work, and time to finish what they hold",
        "undrain": "give drained servers work again",
        "disconnect": "treat servers as lost",
    }.items():
        add = command(name, operator_commands.operate, f"{help} (by id, or by name if alive)", "servers")
        add_note(add, required=True)
        if name in ("cordon", "drain"):
            add(
                "--for",
                dest="seconds",
                type=duration,
                metavar="DURATION",
                help="time after which it gets work again by itself",
            )
        if name == "drain":
            add(
                "--deadline",
                type=duration,
                metavar="DURATION",
                help="time to finish its jobs, like 5m (default: its grace period)",
            )
    add = command("maintenance", operator_commands.maintain, "give no server new work, or end this")
    add("way", choices=("enter", "exit"))
    add("--cluster", help="only this cluster (default: all)")
    add(
        "--for",
        dest="seconds",
        type=duration,
        metavar="DURATION",
        help="time after which it ends (default: until it is ended by hand)",
    )
    add_note(add, required=True)


def _add_holds(command: AddCommand) -> None:
    add = command("hold", operator_commands.hold, "start no more work of a kind for a while; name one of these options")
    for kind, help in {
        "action": "all jobs of a type, or of a path, handler, task or image",
        "tag": "all jobs that require a tag",
        "limit": "all jobs with a limit key",
        "queue": "all jobs of a Celery queue, or with the tag queue:NAME",
        "namespace": "all jobs of a namespace",
        "execution": "the steps of an execution",
        "trigger": "the evaluations of a trigger",
    }.items():
        add(f"--{kind}", help=help)
    add("--within", metavar="NAME", help="only work of this namespace (default: all that the token reaches)")
    add("--refuse", action="store_true", help="refuse new submissions too (default: they wait)")
    add("--for", dest="seconds", type=duration, metavar="DURATION", help="time after which it ends by itself")
    add_note(add)
    add = command("release-hold", operator_commands.release_hold, "end a hold, so that its work starts again", "hold")
    add_note(add)


def add_batches(command: AddCommand) -> None:
    add = command("batches", commands.list_batches, "bulk actions, latest first")
    add("--state", choices=("RUNNING", "COMPLETED", "STOPPED"))
    add("--operation", metavar="OPERATION")
    add("--limit", type=whole, default=50, metavar="N", help="list at most the latest N (default: 50; 0: all)")
    command("batch", commands.show_batch, "one bulk action, with the result of each item", "batch")
    add = command("begin-batch", commands.begin_batch, "start a bulk action, which the control plane runs")
    add("operation", metavar="OPERATION", help="action, like cancel_job, resubmit_job, rerun_execution, drain_server")
    add("id", metavar="ID", nargs="*", help="ids to act on; or use --filter")
    add(
        "--filter",
        action="append",
        metavar="NAME=VALUE",
        help="act on all that match a filter of their list, like state=FAILED; may be repeated",
    )
    add("--namespace", metavar="NAME", help="only this namespace")
    add_note(add, required=True)
    add("--force", action="store_const", const=True, help="for resubmit_job: also jobs that were resubmitted before")
    add("--reason", help="for fail_job: message of the jobs' error")
    add("--changes", metavar="JSON", help='for change_job: fields and new values, like {"priority": 10}')
    add(
        "--deadline-seconds",
        type=duration,
        metavar="DURATION",
        help="for drain_server: time to finish their jobs",
    )
    add(
        "--duration-seconds",
        type=duration,
        metavar="DURATION",
        help="for cordon_server and drain_server: time after which they get work again",
    )
    add("--key", help="idempotency key: with the same key, no second batch starts")
    add_wait(add)
    add = command("stop-batch", commands.stop_batch, "stop a batch: start no further item", "batch")
    add_note(add)


def add_limits(command: AddCommand, listing: Callable[..., None]) -> None:
    listing("limits", commands.list_limits, "rules of limits, latest first")
    add = command(
        "set-limit", operator_commands.set_limit, "set the rule of a key, or of all keys under a prefix: customer:*"
    )
    add("pattern", metavar="KEY")
    add("--running", type=whole, metavar="N", help="slots that may be held at once")
    add("--starts", type=whole, metavar="N", help="jobs that may start in the duration of --per")
    add("--per", type=duration, dest="per_seconds", metavar="DURATION")
    for name, what in QUOTAS.items():
        add(f"--{name.replace('_', '-')}", type=whole, metavar="N", help=what)
    add("--fair", action=argparse.BooleanOptionalAction, help="let keys take turns")
    add("--weight", type=whole, metavar="N", help="starts of a fair key for each start of a key of weight 1")
    add_note(add)
    add_namespace(add)
    add = command("delete-limit", operator_commands.delete_limit, "delete the rule of a key or prefix")
    add("pattern", metavar="KEY")
    add_note(add)
    add_namespace(add)
