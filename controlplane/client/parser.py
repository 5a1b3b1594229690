"""Command line of the client."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection

from controlplane.agent.durations import duration
from controlplane.agent.version import VERSION
from controlplane.agent.whole_numbers import whole
from controlplane.client import commands, completion, mcp, top
from controlplane.client.operator_options import add_batches, add_limits, add_operator_commands
from controlplane.client.shared_options import AddOption, CommandParser
from controlplane.client.submission_options import add_submissions
from controlplane.client.watching import EVERY, watched

EXITS = """exit codes: 0 success, 1 the awaited job, execution or batch ended without success, 2 wrong command line,
3 refused, 4 no usable answer, 5 not ended in time, 130 interrupted"""
PROGRAM = "controlplane"
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
    common = CommandParser(add_help=False, argument_default=argparse.SUPPRESS)
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
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)

    def command(name: str, run: Callable[..., int], help: str, *targets: str) -> AddOption:
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
    add_limits(command, listing)
    add = command("events", commands.list_events, "events of a server or of everything: transitions and actions")
    add("server", metavar="SERVER", nargs="?", help="only events of this server (default: events of everything)")
    add("-f", "--follow", action="store_true", help="continue with new events until interrupted")
    add("--after", type=whole, default=0, metavar="ID", help="only events with a higher id")
    listing("holds", commands.list_holds, "holds of work, latest first")
    listing("queues", commands.list_queues, "waiting and running jobs by namespace and required tags", "tag")
    add_batches(command)
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

    add_submissions(command)
    add_operator_commands(command)
    return parser, subparsers.choices
