"""The mark of an attempt: an environment variable by which all its processes can be found in /proc.

/proc shows the environment with which a process started its program. A forked call never starts a program. So a fork
server starts with empty marks, and each fork writes its own mark over one of them.

A pool process runs one attempt after the other, so the id of an attempt proves nothing there. It has a mark of its own
for its whole life (POOL_NAME), and its marker carries the same id.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

NAME = "JOB_ATTEMPT_ID"
POOL_NAME = "JOB_PROCESS_ID"
"""The variable that marks a pool process instead, because it runs many attempts. Its child processes inherit both."""
POOLED = "pool-"
"""Prefix of the key of a pool process, which is its mark."""
LENGTH = 36  # of a UUID as text
EMPTY = {NAME: "-" * LENGTH, POOL_NAME: "-" * (len(POOLED) + LENGTH)}
"""Variables with which a fork server starts."""


def reserve() -> dict[str, int]:
    """Remove the empty marks from `os.environ`. Return their addresses in the memory that /proc shows, by variable."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype, getenv.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    addresses = {name: getenv(name.encode()) for name in EMPTY}
    for name, address in addresses.items():
        if address is None or os.environ.pop(name) != EMPTY[name]:
            raise OSError(f"this process was started without an empty {name}")
    return addresses


def write(addresses: Mapping[str, int], environment: Mapping[str, str]) -> None:
    """Write the marks in `environment` over the empty ones. Forks of this process have the same marks."""
    for name, address in addresses.items():
        if name in environment:
            length = len(EMPTY[name])
            ctypes.memmove(address, environment[name].encode()[:length].ljust(length, b"\0"), length)


def text(key: str) -> bytes:
    """Return the mark of an attempt or of a pool process as /proc shows it."""
    return f"{POOL_NAME if key.startswith(POOLED) else NAME}={key}".encode()
