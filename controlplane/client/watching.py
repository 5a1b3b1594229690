"""Option `--watch` of lists: fetch and print a list repeatedly."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable

from controlplane.client.asynchronous import Client
from controlplane.client.output import Output

CLEAR = "\x1b[H\x1b[2J"
EVERY = 2.0
"""Seconds between two refreshes, unless the option gives others."""
SHORTEST = 0.1

Run = Callable[[Client, Namespace, Output], int]


def watched(run: Run) -> Run:
    """Return a command that runs once, or with `--watch` until it is interrupted."""

    def run_or_watch(client: Client, given: Namespace, out: Output) -> int:
        while given.watch is not None:
            if out.is_terminal and not out.is_json:
                sys.stdout.write(CLEAR)
            if (code := run(client, given, out)) != 0:
                return code
            sys.stdout.flush()
            time.sleep(max(SHORTEST, given.watch))
        return run(client, given, out)

    return run_or_watch
