"""A script: a command line, run by the shell or as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.processes.child_process import ChildExit
from controlplane.agent.runners.runner import Action, CannotStart, Runner, failure_of


class ScriptRunner(Runner):
    """Run a command line, with or without a shell."""

    action_type = "script"
    tags = ("script",)

    def refuse(self, action: Action) -> None:
        """Allow every script."""

    def command_line(self, action: Action) -> list[str]:
        command = action.get("command")
        if isinstance(command, str) and command.strip():
            return ["/bin/sh", "-c", command]
        if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
            return command
        raise CannotStart("a script's command is a text or a list of texts, not empty")

    def is_own_program(self, action: Action) -> bool:
        return isinstance(action.get("command"), str)  # the shell

    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        own = action.get("env") or {}
        if not isinstance(own, dict):
            raise CannotStart("a script's env is an object of texts")
        return {**inherited, **{str(name): str(value) for name, value in own.items()}}

    def working_directory(self, action: Action) -> str | None:
        return action.get("cwd") or None

    def build_report(self, child_exit: ChildExit) -> dict[str, Any]:
        completed = {"event": "COMPLETED", "output": {"exit_code": 0, "stdout": decode_text(child_exit.stdout)}}
        return failure_of(child_exit) or completed
