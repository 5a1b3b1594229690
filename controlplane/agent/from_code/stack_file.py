"""A file in memory that gets the stacks of all threads of this process when the agent sends it a signal (Linux).

The handler is written in C: it also works while the code does not return to the interpreter, and calls that it
interrupts continue.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import sys
from contextlib import suppress

NAME = "controlplane-stacks"
OFFSET = 11  # of the signal among the real-time signals, which programs rarely use


def stack_signal() -> int:
    return int(signal.SIGRTMIN) + OFFSET


def open_stack_file() -> None:
    """Let the agent read the stacks of this process from now on. Do nothing where that is not possible."""
    if sys.platform != "linux":
        return
    with suppress(OSError, ValueError, RuntimeError):
        file = os.memfd_create(NAME)
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
        faulthandler.register(stack_signal(), file=file, all_threads=True, chain=False)
