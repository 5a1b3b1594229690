"""Command line of the client."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import Any

from controlplane.agent.durations import duration
from controlplane.agent.options import VERSION
from controlplane.client import commands, completion, mcp, operator_commands, top
from controlplane.client.backfill_commands import add_backfills
from controlplane.client.limits import QUOTAS
from controlplane.client.watching import EVERY, watched

EXITS = """exit codes: 0 success, 1 the awaited job, execution or batch ended without success, 2 wrong command line,
3 refused, 4 no usable answer, 5 not ended in time, 130 interrupted"""
PROGRAM = "controlplane"
OF_EXECUTIONS = ("cancel-execution", "rerun", "restart", "seal")
OF_SERVERS = """Where a control plane is installed, `controlplane` runs its commands too: standalone, migrate, check ...
(`controlplane help` lists them; `controlplane manage NAME` runs one that has the name of a client command)."""


def build_parser(prog: str) -> argparse.ArgumentParser:
    return _build(prog)[0]


def is_client_command(word: str) -> bool:
    """Return True if the first word of a command line is a command or an option of the client."""
    is_option = word.startswith("-") and word.partition("=")[0] not in ("--data-dir", "--settings", "--pythonpath")
    return is_option or word in client_commands()


def client_commands() -> Collection[str]:
    return _build("")[1]


def _build(prog: str) -> tuple[argparse.ArgumentParser, Collection[str]]:
    """Return the parser, and the names of its commands."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--url", help="address of the control plane (default: CONTROLPLANE_URL)")
    common.add_argument(
        "--token-file", metavar="FILE", help="file that holds the token (default: the variable CONTROLPLANE_TOKEN)"
    )
    common.add_argument(
        "--retry-for",
        type=duration,
        metavar="DURATION",
        help="how long to try again without a usable answer, like 90 or 5m (default: 30s)",
    )
    common.add_argument("--json", action="store_true", help="print JSON; for a list, one document per line")
    parser = argparse.ArgumentParser(
        prog=prog,
        allow_abbrev=False,  # abbreviations could mean another option in a later version: --name could be --namespace
        description="A control plane from the command line.",
        epilog=f"{OF_SERVERS} {EXITS}" if prog == PROGRAM else EXITS,
        parents=[common],
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[..., int], help: str, *targets: str) -> Callable[..., Any]:
        one = subparsers.add_parser(name, help=help, description=help, parents=[common], allow_abbrev=False)
        one.set_defaults(run=run, command=name)
        for target in targets:
            plural = target.endswith("s")
            one.add_argument(target.removesuffix("s"), metavar=target.upper(), nargs="+" if plural else None)
        return one.add_argument

    def listing(name: str, run: Callable[..., int], help: str, *filters: str) -> None:
        add = command(name, watched(run), help)
        for filter in filters:
            add(f"--{filter}")
        add("--watch", nargs="?", const=EVERY, type=duration, metavar="DURATION", help="repeat it (default: every 2s)")
        add("--namespace", metavar="NAME", help="list only this namespace")
        add("--limit", type=whole, default=50, metavar="N", help="list at most the latest N (default: 50; 0: all)")

    listing("servers", commands.list_servers, "servers, latest first", "cluster", "state", "type", "tag", "search")
    command("server", commands.show_server, "one server", "server")
    listing("jobs", commands.list_jobs, "jobs, latest first", "state", "kind", "key", "tag", "flag")
    command("job", commands.show_job, "one job, with its timeline", "job")
    command("placement", commands.show_placement, "which workers may run a waiting job, and why others may not", "job")
    listing("executions", commands.list_executions, "executions, latest first", "state", "name", "key", "trigger")
    command("execution", commands.show_execution, "one execution, with its steps", "execution")
    listing("triggers", commands.list_triggers, "triggers, latest first")
    _add_limits(command, listing)
    add = command("events", commands.list_events, "events of a server or of everything: transitions and actions")
    add("server", metavar="SERVER", nargs="?", help="only events of this server (default: events of everything)")
    add("-f", "--follow", action="store_true", help="continue with new events until interrupted")
    add("--after", type=whole, default=0, metavar="ID", help="only events with a higher id")
    listing("holds", commands.list_holds, "holds of work, latest first")
    listing("queues", commands.list_queues, "waiting and running jobs by namespace and required tags", "tag")
    _add_batches(command)
    add = command("instance", commands.show_instance, "the state of the whole control plane")
    add("--cluster", help="only this cluster")
    add = command("top", top.run, "the same, refreshed, with the next expected changes")
    add("--every", type=duration, default=2.0, metavar="DURATION")
    add("--times", type=whole, default=0, metavar="N", help="refresh N times (default: until interrupted)")

    add = command("completion", completion.run, "print a script with which a shell completes this program's words")
    add("shell", choices=completion.SHELLS)
    add = command("mcp", mcp.serve, "serve the API as MCP tools on standard input and output, for a language model")
    add("--allow-actions", action="store_true", help="also offer tools that change something (default: they only read)")
    add = command("logs", commands.show_logs, "log lines of a job", "job")
    add("-f", "--follow", action="store_true", help="continue until the job has ended")
    add("--attempt", type=whole, metavar="N", help="lines of this attempt only")

    _add_submissions(command)
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
        add("--note", default="", help="reason, recorded with your name and the time")
        if name == "restart":
            add("--from-step", metavar="KEY", help="also run this step and its dependents again")
            add("--inputs", metavar="JSON", help="inputs of the new execution")
        if name == "fail":
            add("--reason", default="", help="message of the job's error (default: the note)")
    _add_changes(command)
    for name, help in {
        "cordon": "give servers no new work",
        "uncordon": "give servers work again",
        "drain": "give servers no new work, and time to finish what they hold",
        "undrain": "give drained servers work again",
        "disconnect": "treat servers as lost",
    }.items():
        add = command(name, operator_commands.operate, f"{help} (by id, or by name if alive)", "servers")
        add("--note", required=True, help="reason, recorded with your name and the time")
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
    add("--note", required=True, help="reason, recorded with your name and the time")
    _add_holds(command)
    add_backfills(command)
    add = command("release-brake", operator_commands.release_brake, "disconnect the servers that the brake holds")
    add("--cluster", help="only this cluster (default: all)")
    add("--namespace", help="only this namespace (default: all)")
    add("--note", required=True, help="reason, recorded with your name and the time")
    return parser, subparsers.choices


def _add_holds(command: Callable[..., Callable[..., Any]]) -> None:
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
    add("--note", default="", help="reason, recorded with your name and the time")
    add = command("release-hold", operator_commands.release_hold, "end a hold, so that its work starts again", "hold")
    add("--note", default="", help="reason, recorded with your name and the time")


def _add_changes(command: Callable[..., Callable[..., Any]]) -> None:
    add = command("change", operator_commands.change, "change fields of waiting jobs", "jobs")
    add("--priority", type=int, help="-1000 to 1000, higher first")
    add("--run-now", action="store_true", help="let them start now, whatever their available_at is")
    add("--available-at", metavar="TIME", help="let them start at this time, like 2030-01-31T08:00:00Z")
    add("--tag", action="append", dest="tags", metavar="TAG", help="tag that the worker must have; may be repeated")
    add("--timeout-seconds", type=duration, metavar="DURATION", help="timeout of each attempt")
    add("--max-retries", type=whole, metavar="N", help="number of retries after an error of its code")
    add("--payload", metavar="JSON", help="payload for the code")
    add("--note", default="", help="reason, recorded with your name and the time")


def _add_batches(command: Callable[..., Callable[..., Any]]) -> None:
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
    add("--note", required=True, help="reason, recorded with your name and the time")
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
    _add_wait(add)
    add = command("stop-batch", commands.stop_batch, "stop a batch: start no further item", "batch")
    add("--note", default="", help="reason, recorded with your name and the time")


def _add_limits(command: Callable[..., Callable[..., Any]], listing: Callable[..., None]) -> None:
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
    add("--note", default="", help="reason, recorded with your name and the time")
    _add_namespace(add)
    add = command("delete-limit", operator_commands.delete_limit, "delete the rule of a key or prefix")
    add("pattern", metavar="KEY")
    add("--note", default="", help="reason, recorded with your name and the time")
    _add_namespace(add)


def _add_submissions(command: Callable[..., Callable[..., Any]]) -> None:
    add = command("submit", commands.submit, "submit a job: a command, or one that the options describe")
    add(
        "script",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one text for /bin/sh, or a program and its arguments",
    )
    add("--callable", metavar="MODULE:FUNCTION")
    add("--handler", metavar="NAME")
    add("--name", metavar="TEXT", help="name in lists and on pages (default: its action)")
    add("--file", metavar="FILE", help="file with a job, or a list of jobs, as JSON; - is standard input")
    add("--payload", metavar="JSON", help="payload for the code")
    add("--tag", action="append", dest="tags", metavar="TAG", help="tag that the worker must have; may be repeated")
    add("--priority", type=int)
    add("--timeout-seconds", type=duration, metavar="DURATION", help="timeout of each attempt")
    add("--max-retries", type=whole, metavar="N", help="number of retries after an error of its code")
    add("--key", help="idempotency key: with the same key, no second job is submitted")
    add("--unique", metavar="KEY", help="unique key: while a job with it waits or runs, that job is returned")
    add("--limit", action="append", dest="limits", metavar="KEY", help="key whose limit counts; may be repeated")
    add("--worker-slots", type=whole, metavar="N", help="slots of its worker that each attempt uses (default: 1)")
    add("--unmatched", choices=("fail", "wait"), help="what to do when no worker alive has its tags")
    add("--on-worker-lost", choices=("RESUBMIT", "FAIL"))
    add("--require-worker", action="store_const", const=True, help="refuse the job if no worker can run it now")
    add("-f", "--follow", action="store_true", help="print its output while it runs, and wait for its end")
    _add_namespace(add)
    _add_wait(add)
    add = command("execute", commands.execute, "start an execution")
    add("file", metavar="FILE", help="file with the execution as JSON, with name and steps; - is standard input")
    add("--key", help="idempotency key: with the same key, no second execution starts")
    add("--limit", action="append", dest="limits", metavar="KEY", help="key whose slot the execution holds")
    _add_namespace(add)
    _add_wait(add)
    add = command("send-signal", commands.send_signal, "send a signal to the steps that wait for it")
    add("name", metavar="NAME", help="name of the signal, like paid:42")
    add("--body", metavar="JSON", help="body, which becomes the output of the steps (default: null)")
    add("--key", help="idempotency key: with the same key, no second signal is sent")
    _add_namespace(add)
    add = command("answer", commands.answer, "answer a step that asks people", "execution")
    add("step", metavar="STEP", help="key of the step")
    add("choice", metavar="CHOICE", help="one of its choices, like approve")
    add("--values", metavar="JSON", help='values of its fields, like {"version": "4.2"}')
    add("--note", default="", help="reason, recorded with your name and the time")
    add = command("wait", commands.wait, "wait until jobs have ended", "jobs")
    add("--timeout", type=duration, metavar="DURATION", help="time to wait; then the exit code is 5")


def _add_namespace(add: Callable[..., Any]) -> None:
    add("--namespace", metavar="NAME", help="namespace (default: the token's)")


def _add_wait(add: Callable[..., Any]) -> None:
    add("--wait", action="store_true", help="wait for its end; the exit code is 1 unless it is COMPLETED")
    add("--timeout", type=duration, metavar="DURATION", help="time to wait; then the exit code is 5")


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)
