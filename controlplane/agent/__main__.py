"""`python -m controlplane.agent`: exit 0 after a graceful end, 1 after any other, 2 if it could not start."""

from __future__ import annotations

import logging
import sys
from typing import TextIO, cast

import structlog

from controlplane.agent.api.client import Refused
from controlplane.agent.clean_text import escape_event, escaped
from controlplane.agent.command_line import build_parser
from controlplane.agent.fitness import status_file
from controlplane.agent.fitness.runtimes import find_runtimes
from controlplane.agent.lasting_log import LastingRenderer, LastingStream
from controlplane.agent.options import read_options
from controlplane.agent.processes import environment, host
from controlplane.agent.processes.wakeup import InterruptedBySignal, Wakeup
from controlplane.agent.secrets.values import mask_event
from controlplane.agent.worker import AgentWorker, ServerPurged


def main(argv: list[str] | None = None) -> int:
    """Run an agent, or `--check`, and return the exit status."""
    arguments = build_parser().parse_args(argv)
    if arguments.check:
        problem = status_file.check_status(arguments.name)
        print(problem or "alive, and its heartbeats are answered")  # noqa: T201
        print(f"fast recovery: {host.read_problem() or 'this host can prove deaths'}")  # noqa: T201
        return 1 if problem else 0
    _configure_logging(arguments.log_level)
    try:
        options = read_options(arguments)
    except ValueError as error:
        return _print_usage_error(str(error))
    environment.close()
    if arguments.token:
        structlog.get_logger().warning(
            "--token is visible to all users who can list processes: use --token-file or CONTROLPLANE_TOKEN"
        )
    options = options.with_runtimes(find_runtimes(arguments.runtimes.split(","), options.environment))
    wakeup = Wakeup()
    wakeup.install_handlers()
    was_known = False
    while True:
        worker = AgentWorker(options, wakeup, was_known=was_known)
        try:
            return worker.run()
        except ServerPurged:
            was_known, options = True, worker.options
            continue  # the control plane has deleted this server: register again as a new one
        except InterruptedBySignal as interrupted:
            structlog.get_logger().info(f"Received {interrupted} signal")
            return 0
        except Refused as refused:
            return _print_usage_error(_describe_refusal(refused))


def _describe_refusal(refused: Refused) -> str:
    if refused.status in (401, 403):
        return f"the token was refused: {refused.detail}"
    if refused.status == 404:
        return f"no control plane answers at this address: {refused.detail}"
    fields = refused.errors.items() if isinstance(refused.errors, dict) else ()
    lines = [
        f"  {field}: {'; '.join(map(str, messages)) if isinstance(messages, list) else messages}"
        for field, messages in fields
    ]
    return "\n".join([f"the registration was refused: {refused.detail}", *lines])


def _print_usage_error(text: str) -> int:
    print(*map(escaped, text.split("\n")), sep="\n", file=sys.stderr)  # noqa: T201
    return 2


def _configure_logging(level: str) -> None:
    structlog.configure(
        processors=[
            LastingRenderer(
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ", utc=True),
                structlog.processors.format_exc_info,
                mask_event,
                escape_event,
                structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False, pad_event_to=0),
            )
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LastingStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )


if __name__ == "__main__":
    sys.exit(main())
