"""The call of a function in a pool process."""

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
