"""A pool process and the call that it runs, as the agent keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.agent.processes.child_process import ChildCommand

OutputHandler = Callable[[str, bytes], None]
Environment = frozenset[tuple[str, str]]


@dataclass
class PooledCall:
    key: str  # of the attempt
    command: ChildCommand
    on_output: OutputHandler
    deliveries: int = 0

    @property
    def module(self) -> str:
        return self.command.module or ""

    @property
    def environment(self) -> Environment:
        """Return the variables that do not belong to the attempt."""
        command = self.command
        return frozenset((name, value) for name, value in command.env.items() if name not in command.variables)

    def describe(self) -> dict[str, str]:
        return {"attempt": self.key, "job": self.command.variables.get("JOB_ID", "")}

    def encode(self) -> bytes:
        function, modules = self.command.argv[3:5]
        call = {"id": self.key, "function": function, "modules": modules, "variables": dict(self.command.variables)}
        return json.dumps(call).encode() + b"\n" + self.command.stdin + b"\n"


@dataclass
class PoolMember:
    """A pool process. `call` is the one that it runs, or that waits until it is ready."""

    key: str
    environment: Environment
    preloads: bool
    call: PooledCall | None = None
    is_ready: bool = False
    is_killed: bool = False  # with its attempt
    calls: int = 0
    memory_when_new: int = 0  # bytes, this and the next one
    memory_of_earlier: int = 0  # kept from the calls before the present one
    result: bytes = b""
    is_retired: bool = False

    @property
    def is_idle(self) -> bool:
        return self.is_ready and self.call is None and not self.is_retired and not self.is_killed

    def write_output(self, stream: str, chunk: bytes) -> None:
        if self.call:  # output between two attempts belongs to none
            self.call.on_output(stream, chunk)
