"""Where a worker finds the secrets that jobs name: a folder of files, its environment, a command."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.agent.child_process import ChildCommand, ChildExit
from controlplane.agent.supervisor import STDOUT_KEPT

PREFIX = "CONTROLPLANE_SECRET_"
"""Of variables: the secret `db-password` is in CONTROLPLANE_SECRET_DB_PASSWORD."""
SIZE_LIMIT = STDOUT_KEPT  # bytes; what a command writes beyond it is not kept


class SecretUnavailable(Exception):
    """A job cannot begin; its text is a sentence, which says nothing of the value."""


@dataclass(frozen=True)
class SecretSources:
    """`variables`: of the agent's environment. `environment`: that of the command."""

    folder: Path | None = None
    command: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def find(self, name: str) -> str | None:
        """The first of file and variable that is there; None: neither. Raises SecretUnavailable."""
        data = self._read_file(name)
        if data is None and (value := self.variables.get(variable_of(name))) is not None:
            data = os.fsencode(value)
        return None if data is None else decode_secret(name, data)

    def build_command(self, name: str) -> ChildCommand:
        """What is asked for a secret that is in neither. Raises SecretUnavailable."""
        if self.command is None:
            raise SecretUnavailable(f"this worker has no secret {name}")
        return ChildCommand(["/bin/sh", "-c", self.command, "secret-command", name], dict(self.environment), b"")

    def _read_file(self, name: str) -> bytes | None:
        if self.folder is None:
            return None
        try:
            # Not to wait for whoever writes to a pipe; and a link is followed, for orchestrators mount secrets so.
            descriptor = os.open(self.folder / name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SecretUnavailable(f"the file of the secret {name} cannot be read: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SecretUnavailable(f"the secret {name} is no file")
            return os.read(descriptor, SIZE_LIMIT)
        finally:
            os.close(descriptor)


def variable_of(name: str) -> str:
    return PREFIX + name.upper().replace("-", "_").replace(".", "_")


def decode_secret(name: str, data: bytes) -> str:
    """A line end at its end is no part of it. Raises SecretUnavailable."""
    if len(data) >= SIZE_LIMIT:
        raise SecretUnavailable(f"the secret {name} has {SIZE_LIMIT} bytes or more")
    try:
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretUnavailable(f"the secret {name} is not text in UTF-8") from None
    if not text or "\0" in text:
        raise SecretUnavailable(f"the secret {name} is empty" if not text else f"the secret {name} has a NUL in it")
    return text


def read_answer(name: str, child_exit: ChildExit) -> str:
    """What the command wrote. Raises SecretUnavailable."""
    if child_exit.problem or child_exit.status:
        raise SecretUnavailable(f"the secret command found no {name}: it ended with status {child_exit.status}")
    return decode_secret(name, child_exit.stdout)
