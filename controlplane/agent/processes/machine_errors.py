"""Errors of the machine. The job whose code they keep from starting is not at fault."""

from __future__ import annotations

import errno
import os

NUMBERS = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN", "EDQUOT", "EHOSTDOWN", "EHOSTUNREACH", "EIO", "EMFILE", "ENETDOWN", "ENETUNREACH", "ENFILE", "ENODEV",
        "ENOLINK", "ENOMEM", "ENOSPC", "ENOTCONN", "ENXIO", "EREMOTEIO", "EROFS", "ESHUTDOWN", "ESTALE", "ETIMEDOUT",
        "EUCLEAN",
    )
    if hasattr(errno, name)
)  # fmt: skip
"""Errors of disks, quotas, network file systems, memory, processes and file descriptors."""
OF_COMMAND = frozenset({errno.E2BIG, 0})
"""Errors of a command line, even if the agent chose the program. 0 is not a system error."""
TEXTS = tuple(os.strerror(number).lower() for number in NUMBERS)


class MachineError(Exception):
    """The machine kept the code of a job from starting.

    `check` is a command that fails while the machine has this problem. `is_certain` means that no job can cause it.
    """

    def __init__(self, why: str, check: list[str] | None = None, *, is_certain: bool = False) -> None:
        super().__init__(why)
        self.check, self.is_certain = check, is_certain


def is_of_machine(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in NUMBERS)


def has_machine_text(text: str) -> bool:
    """Return True if the message of another program has the text of such an error."""
    return any(known in text.lower() for known in TEXTS)
