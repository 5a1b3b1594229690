"""Entry point of the heart process: `python -m controlplane.agent.celery.heart DEADLINE_FD`."""

from __future__ import annotations

import logging
import os
import signal
import sys

from controlplane.agent.celery.deadline import Deadline
from controlplane.agent.celery.heart.logs import configure_logging
from controlplane.agent.celery.heart.process import HeartProcess
from controlplane.agent.celery.messages import decode_greeting


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    greeting = decode_greeting(_first_line())
    configure_logging(logging.INFO)
    HeartProcess(greeting, Deadline(int(sys.argv[1])), parent).run()


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)  # unbuffered: select() must see everything after this line
        if not byte:
            sys.exit(0)
        line += byte
    return line


if __name__ == "__main__":
    main()
