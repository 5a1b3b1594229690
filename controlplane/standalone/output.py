"""Print the output of several processes in one terminal. Each line begins with the time and the name of its process."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from itertools import cycle

from controlplane.agent.clean_text import TAB, escaped

SYSTEM = "system"
BASIC = ("36", "33", "32", "35", "31", "34")  # cyan, yellow, green, magenta, red, blue
COLOURS = (*BASIC, *(f"{colour};1" for colour in BASIC))


class ProcessOutput:
    def __init__(self, names: Iterable[str], *, unread: Callable[[], None]) -> None:
        """Prepare output for processes with these names.

        `unread` is called when nobody reads stdout any more, as with `| head`, or with `| tee` after Ctrl-C. Later
        output is dropped.
        """
        names = list(names)
        self._unread = unread
        self._width = max(map(len, (SYSTEM, *names)))
        self._colours = dict(zip(names, cycle(COLOURS), strict=False)) if sys.stdout.isatty() else {}
        self._one_at_a_time = threading.Lock()

    def show(self, name: str, text: str) -> None:
        prefix = f"{time.strftime('%H:%M:%S')} {name:{self._width}} | "
        if colour := self._colours.get(name):
            prefix = f"\033[0m\033[{colour}m{prefix}\033[0m"
        with self._one_at_a_time:
            try:
                for line in text.splitlines():
                    print(prefix + escaped(line, keep=TAB), flush=True)  # noqa: T201
            except BrokenPipeError:
                # Otherwise Python would fail again when it flushes stdout at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                self._unread()
