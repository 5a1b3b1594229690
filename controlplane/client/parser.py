"""What may be said on the command line of the client."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import Any

from controlplane.agent.options import VERSION
from controlplane.client import commands, top

EXITS = """exit codes: 0 done, 1 what was waited for ended without success, 2 not understood, 3 refused,
4 no usable answer, 5 what was waited for has not ended in time, 130 interrupted"""
PROGRAM = "controlplane"
OF_EXECUTIONS = ("cancel-execution", "rerun", "restart")
OF_SERVERS = """On the machine of a control plane `controlplane` has its commands too: standalone, migrate, check ...
(`controlplane help` lists them; one that has the name of another here is `controlplane manage NAME`)."""


def build_parser(prog: str) -> argparse.ArgumentParser:
    return _build(prog)[0]


def is_client_command(word: str) -> bool:
    """Whether a command line that begins so is the client's: with one of its commands, or its options."""
    is_option = word.startswith("-") and word.partition("=")[0] not in ("--data-dir", "--settings", "--pythonpath")
    return is_option or word in client_commands()


def client_commands() -> Collection[str]:
    return _build("")[1]


def _build(prog: str) -> tuple[argparse.ArgumentParser, Collection[str]]:
    """The parser, and the names of its commands."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--url", help="address of the control plane (default: CONTROLPLANE_URL)")
    common.add_argument(
        "--token-file", metavar="FILE", help="file that holds the token (default: the variable CONTROLPLANE_TOKEN)"
    )
    common.add_argument(
        "--retry-for", type=float, metavar="SECONDS", help="how long to try again without a usable answer (default: 30)"
    )
    common.add_argument("--json", action="store_true", help="print JSON; of a list, one document in each line")
    parser = argparse.ArgumentParser(
        prog=prog,
        allow_abbrev=False,  # what is half an option may be another's: --name was --namespace
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
        add = command(name, run, help)
        for filter in filters:
            add(f"--{filter}")
        add("--namespace", metavar="NAME", help="list only what is of this namespace")
        add("--limit", type=whole, default=50, metavar="N", help="list at most the latest N (default: 50; 0: all)")

    listing("servers", commands.list_servers, "servers, latest first", "cluster", "state", "type", "tag", "search")
    command("server", commands.show_server, "one server", "server")
    listing("jobs", commands.list_jobs, "jobs, latest first", "state", "kind", "key", "tag")
    command("job", commands.show_job, "one job, with its timeline", "job")
    command("placement", commands.show_placement, "who may have a waiting job, and why the others not", "job")
    listing("executions", commands.list_executions, "executions, latest first", "state", "name", "key", "trigger")
    command("execution", commands.show_execution, "one execution, with its steps", "execution")
    listing("triggers", commands.list_triggers, "triggers, latest first")
    command("events", commands.list_events, "what happened to a server and was done to it", "server")
    _add_batches(command)
    add = command("instance", commands.show_instance, "the state of the whole control plane")
    add("--cluster", help="of this cluster alone")
    add = command("top", top.run, "the same, live, with what gets worse next")
    add("--every", type=float, default=2.0, metavar="SECONDS")
    add("--times", type=whole, default=0, metavar="N", help="refresh N times (default: until interrupted)")

    add = command("logs", commands.show_logs, "what the code of a job wrote", "job")
    add("-f", "--follow", action="store_true", help="go on until the job has ended")
    add("--attempt", type=whole, metavar="N", help="lines of this attempt only")

    _add_submissions(command)
    for name, help in {
        "cancel": "cancel jobs",
        "resubmit": "take live jobs from their workers, submit ended ones again",
        "fail": "fail jobs for good",
        "cancel-execution": "cancel executions with all their steps",
        "rerun": "run executions again from their beginning",
        "restart": "run executions again from where they failed: what completed is kept",
        "evaluate": "have triggers evaluated now",
    }.items():
        target = {"evaluate": "triggers"}.get(name, "executions" if name in OF_EXECUTIONS else "jobs")
        add = command(name, commands.act, help, target)
        add("--note", default="", help="reason, recorded with your name and the time")
        if name == "fail":
            add("--reason", default="", help="message of the job's error (default: the note)")
    for name, help in {
        "cordon": "give servers no new work",
        "uncordon": "give servers work again",
        "drain": "give servers no new work, and time to finish what they hold",
        "undrain": "give drained servers work again",
        "disconnect": "treat servers as lost",
    }.items():
        add = command(name, commands.operate, f"{help} (by id, or name of one that is alive)", "servers")
        add("--note", required=True, help="reason, recorded with your name and the time")
        if name in ("cordon", "drain"):
            add("--for", dest="seconds", type=float, metavar="SECONDS", help="then it gets work again by itself")
        if name == "drain":
            add(
                "--deadline",
                type=float,
                metavar="SECONDS",
                help="seconds that it has to finish (default: its grace period)",
            )
    add = command("maintenance", commands.maintain, "give nobody new work, or give it out again")
    add("way", choices=("enter", "exit"))
    add("--cluster", help="of this cluster alone (default: of all)")
    add("--for", dest="seconds", type=float, metavar="SECONDS", help="then it ends (default: somebody ends it)")
    add("--note", required=True, help="reason, recorded with your name and the time")
    add = command("release-brake", commands.release_brake, "let the servers be disconnected that the brake holds")
    add("--cluster", help="of this cluster alone (default: whatever it holds)")
    add("--note", required=True, help="reason, recorded with your name and the time")
    return parser, subparsers.choices


def _add_batches(command: Callable[..., Callable[..., Any]]) -> None:
    add = command("batches", commands.list_batches, "actions on many, latest first")
    add("--state", choices=("RUNNING", "COMPLETED", "STOPPED"))
    add("--operation", metavar="OPERATION")
    add("--limit", type=whole, default=50, metavar="N", help="list at most the latest N (default: 50; 0: all)")
    command("batch", commands.show_batch, "one of them, and what came of each item", "batch")
    add = command("begin-batch", commands.begin_batch, "have something done to many, on the server")
    add("operation", metavar="OPERATION", help="like cancel_job, resubmit_job, rerun_execution, drain_server")
    add("id", metavar="ID", nargs="*", help="of what it is done to; or --filter")
    add(
        "--filter",
        action="append",
        metavar="NAME=VALUE",
        help="all that match, by a filter of their list, like state=FAILED; may be repeated",
    )
    add("--namespace", metavar="NAME", help="only what is of this namespace")
    add("--note", required=True, help="reason, recorded with your name and the time")
    add("--force", action="store_const", const=True, help="of resubmit_job: even what was resubmitted before")
    add("--reason", help="of fail_job: message of the jobs' error")
    add("--deadline-seconds", type=float, metavar="SECONDS", help="of drain_server: time to finish what they hold")
    add("--duration-seconds", type=float, metavar="SECONDS", help="of cordon_server, drain_server: then they get work")
    add("--key", help="idempotency key: with the same key, no second batch is made")
    _add_wait(add)
    add = command("stop-batch", commands.stop_batch, "begin no other item of a batch", "batch")
    add("--note", default="", help="reason, recorded with your name and the time")


def _add_submissions(command: Callable[..., Callable[..., Any]]) -> None:
    add = command("submit", commands.submit, "submit a job: a command, or as the options describe")
    add(
        "script",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one text for /bin/sh, or a program and its arguments",
    )
    add("--callable", metavar="MODULE:FUNCTION")
    add("--handler", metavar="NAME")
    add("--name", metavar="TEXT", help="what lists and pages call it (default: what it runs)")
    add("--file", metavar="FILE", help="file with a job, or a list of jobs, as JSON; - is standard input")
    add("--payload", metavar="JSON", help="payload that the code gets")
    add("--tag", action="append", dest="tags", metavar="TAG", help="tag that the worker must have; may be repeated")
    add("--priority", type=int)
    add("--timeout-seconds", type=float, metavar="SECONDS", help="timeout of each attempt")
    add("--max-retries", type=whole, metavar="N", help="how often to retry after an error of its code")
    add("--key", help="idempotency key: with the same key, no second job is made")
    add("--unmatched", choices=("fail", "wait"), help="what to do when no worker alive has its tags")
    add("--on-worker-lost", choices=("RESUBMIT", "FAIL"))
    add("--require-worker", action="store_const", const=True, help="refuse the job when no worker may run it now")
    add("-f", "--follow", action="store_true", help="print its output while it runs, and wait for its end")
    _add_namespace(add)
    _add_wait(add)
    add = command("execute", commands.execute, "begin an execution")
    add("file", metavar="FILE", help="file with the execution as JSON, with name and steps; - is standard input")
    add("--key", help="idempotency key: with the same key, no second execution is made")
    _add_namespace(add)
    _add_wait(add)
    add = command("wait", commands.wait, "wait until jobs have ended", "jobs")
    add("--timeout", type=float, metavar="SECONDS", help="how long to wait; then the exit code is 5")


def _add_namespace(add: Callable[..., Any]) -> None:
    add("--namespace", metavar="NAME", help="namespace to make it in (default: that of the token)")


def _add_wait(add: Callable[..., Any]) -> None:
    add("--wait", action="store_true", help="wait until it has ended; the exit code is 1 unless it is COMPLETED")
    add("--timeout", type=float, metavar="SECONDS", help="how long to wait; then the exit code is 5")


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)
