"""The places where a worker finds the secrets that jobs name: a folder of files, its environment, a command."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.child_start import STDOUT_KEPT
from controlplane.agent.processes.machine_errors import MachineError, is_of_machine

PREFIX = "CONTROLPLANE_SECRET_"
"""Prefix of variables: the secret `db-password` is in CONTROLPLANE_SECRET_DB_PASSWORD."""
SIZE_LIMIT = STDOUT_KEPT  # bytes; more output of a command is not kept


class SecretUnavailable(Exception):
    """A job cannot start without this secret. The message does not contain the value."""


@dataclass(frozen=True)
class SecretSources:
    """`variables` come from the agent's environment. `environment` is the environment of the command."""

    folder: Path | None = None
    command: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def find(self, name: str) -> str | None:
        """Return the secret from its file, otherwise from its variable, otherwise None.

        Raise SecretUnavailable or MachineError.
        """
        data = self._read_file(name)
        if data is None and (value := self.variables.get(variable_of(name))) is not None:
            data = os.fsencode(value)
        return None if data is None else decode_secret(name, data)

    def build_command(self, name: str) -> ChildCommand:
        """Return the command for a secret that is in no file or variable. Raise SecretUnavailable."""
        if self.command is None:
            raise SecretUnavailable(f"this worker has no secret {name}")
        argv = ["/bin/sh", "-c", self.command, "secret-command", name]
        return ChildCommand(argv, dict(self.environment), b"", is_own=True)

    def _read_file(self, name: str) -> bytes | None:
        if self.folder is None:
            return None
        try:
            # Do not wait for the writer of a pipe. Follow links, because orchestrators mount secrets as links.
            descriptor = os.open(self.folder / name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _cannot_be_read(name, error) from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SecretUnavailable(f"the secret {name} is not a regular file")
            return os.read(descriptor, SIZE_LIMIT)
        except OSError as error:
            raise _cannot_be_read(name, error) from None
        finally:
            os.close(descriptor)


def _cannot_be_read(name: str, error: OSError) -> Exception:
    why = f"the file of the secret {name} cannot be read: {error.strerror}"
    return MachineError(why) if is_of_machine(error) else SecretUnavailable(why)


def variable_of(name: str) -> str:
    return PREFIX + name.upper().replace("-", "_").replace(".", "_")


def decode_secret(name: str, data: bytes) -> str:
    """Return the text of a secret, without a line end at its end. Raise SecretUnavailable."""
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
    """Return the secret that the command wrote. Raise SecretUnavailable."""
    if child_exit.problem or child_exit.status:
        raise SecretUnavailable(f"the secret command found no {name}: it ended with status {child_exit.status}")
    return decode_secret(name, child_exit.stdout)
