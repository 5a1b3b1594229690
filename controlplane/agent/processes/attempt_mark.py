"""The mark of an attempt: an environment variable by which all its processes can be found in /proc.

/proc shows the environment with which a process started its program. A forked call never starts a program. So a fork
server starts with an empty mark, and each call writes the id of its attempt over it.

A pool process runs one attempt after the other, so the id of an attempt proves nothing there. It has a mark of its own
for its whole life (POOL_NAME), and its marker carries the same id.
"""

from __future__ import annotations

import ctypes
import os

NAME = "JOB_ATTEMPT_ID"
POOL_NAME = "JOB_PROCESS_ID"
"""The variable that marks a pool process instead, because it runs many attempts. Its child processes inherit both."""
POOLED = "pool-"
"""Prefix of the key of a pool process, which is its mark."""
LENGTH = 36  # of a UUID as text
EMPTY = "-" * LENGTH


def reserve() -> int:
    """Remove the empty mark from `os.environ`, and return its address in the memory that /proc shows."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype, getenv.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    address: int | None = getenv(NAME.encode())
    if address is None or os.environ.pop(NAME) != EMPTY:
        raise OSError(f"this process was started without an empty {NAME}")
    return address


def write(address: int, attempt: str) -> None:
    """Write the id of an attempt over the empty mark. Forks of this process have the same mark."""
    ctypes.memmove(address, attempt.encode()[:LENGTH].ljust(LENGTH, b"\0"), LENGTH)


def text(key: str) -> bytes:
    """Return the mark of an attempt or of a pool process as /proc shows it."""
    return f"{POOL_NAME if key.startswith(POOLED) else NAME}={key}".encode()
