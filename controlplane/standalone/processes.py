"""Tie child processes of `standalone` to their parent, and check whether a URL answers."""

import ctypes
import http.client
import os
import signal
import urllib.request
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def make_child_die_with_us(signum: int) -> Callable[[], None]:
    """Return a `preexec_fn` that sends the child `signum` when this thread ends, even by SIGKILL (Linux).

    It also resets SIGINT and SIGTERM to their defaults in the child, even if this process ignores them.
    """
    parent = os.getpid()

    def prepare_child() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if prctl := getattr(LIBC, "prctl", None):
            prctl(PR_SET_PDEATHSIG, signum)
        if os.getppid() != parent:  # the parent died before prctl
            os.kill(os.getpid(), signum)

    return prepare_child


def is_answering(url: str) -> bool:
    """Return True if this URL returns a success status."""
    try:
        with DIRECTLY.open(url, timeout=2) as response:
            return 200 <= response.status < 300
    except (OSError, http.client.HTTPException):
        return False
