"""How each type of action runs here: a class each, with the tags that it lends the worker, what it allows, the command
of an action, and what the end of its code means."""

from __future__ import annotations

import json
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from controlplane.agent.child_process import ChildCommand, ChildExit
from controlplane.agent.environment import with_modules
from controlplane.agent.limits import PAYLOAD_IN_ENVIRONMENT
from controlplane.agent.logs import decode_text
from controlplane.agent.outcomes import failure_report, report_of

Action = dict[str, Any]


class ActionNotAllowed(Exception):
    """This agent does not run such an action."""


class CannotStart(Exception):
    """The action does not describe something that can be started."""


class Runner(ABC):
    """How actions of one type run here."""

    action_type: ClassVar[str]
    tags: Collection[str]
    """What a worker that has this runner is matched by."""
    with_result: ClassVar[bool] = False
    """Whether its code hands back a result of its own, and gives signs of life by itself."""

    @abstractmethod
    def refuse(self, action: Action) -> None:
        """Raises ActionNotAllowed for an action of its type that does not run here."""

    @abstractmethod
    def command_line(self, action: Action) -> list[str]:
        """Raises CannotStart."""

    @abstractmethod
    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        """What the code finds in its environment, beside what is ours. Raises CannotStart."""

    def working_directory(self, action: Action) -> str | None:
        """Where the code starts; None: where the agent did."""
        return None

    def module(self, action: Action) -> str | None:
        """That of the function that is called, if any is."""
        return None

    @abstractmethod
    def build_report(self, child_exit: ChildExit) -> dict[str, Any]:
        """`event` and its fields for code that ended without our doing."""

    def build_command(
        self, item: dict[str, Any], files: Mapping[str, Path], inherited: Mapping[str, str]
    ) -> ChildCommand:
        """The command of a claimed attempt. `files`: its own, by the variables that name them. `inherited`: what its
        environment begins with. Raises CannotStart.
        """
        job = item["job"]
        payload = json.dumps(job.get("payload"))
        environment = self.environment(job["action"], inherited)
        for name in ("JOB_PAYLOAD", "JOB_EXECUTION", "JOB_STEP", "TRACEPARENT"):
            environment.pop(name, None)
        # Ours come last: a job's code must be able to trust its fencing token.
        environment |= job_environment(item, files)
        argv, cwd = self.command_line(job["action"]), self.working_directory(job["action"])
        return ChildCommand(
            argv, environment, payload.encode(), cwd, with_result=self.with_result, with_pulse=self.with_result,
            module=self.module(job["action"]),
        )  # fmt: skip


def job_environment(item: dict[str, Any], files: Mapping[str, Path]) -> dict[str, str]:
    """What the code of a claimed attempt finds of it in its environment."""
    job = item["job"]
    environment = {"JOB_ID": job["id"], "JOB_ATTEMPT": item["number"], "JOB_ATTEMPT_ID": item["id"], **files}
    of_step = {
        "JOB_EXECUTION": job.get("execution"), "JOB_STEP": job.get("step"), "TRACEPARENT": job.get("traceparent"),
    }  # fmt: skip
    environment |= {name: value for name, value in of_step.items() if value is not None}
    payload = json.dumps(job.get("payload"))
    if len(payload) < PAYLOAD_IN_ENVIRONMENT:
        environment["JOB_PAYLOAD"] = payload
    return {name: str(value) for name, value in environment.items()}


class ScriptRunner(Runner):
    """A command line, run by the shell or as it is."""

    action_type = "script"
    tags = ("script",)

    def refuse(self, action: Action) -> None:
        """It runs any."""

    def command_line(self, action: Action) -> list[str]:
        command = action.get("command")
        if isinstance(command, str) and command.strip():
            return ["/bin/sh", "-c", command]
        if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
            return command
        raise CannotStart("a script's command is a text or a list of texts, not empty")

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


class CallableRunner(Runner):
    """A Python function, called in a process of its own. `modules`: globs of those that define it; empty: any."""

    action_type = "callable"
    tags: Collection[str] = ("python",)
    with_result = True

    def __init__(self, modules: Collection[str] = ()) -> None:
        self.modules = modules

    def refuse(self, action: Action) -> None:
        module = self.function(action).partition(":")[0]
        if self.modules and not any(fnmatchcase(module, glob) for glob in self.modules):
            raise ActionNotAllowed(f"module {module} is not among {', '.join(self.modules)}")

    def function(self, action: Action) -> str:
        """The function that is called, as `package.module:function`."""
        return str(action.get("path") or "")

    def command_line(self, action: Action) -> list[str]:
        # The child looks where the function is defined: what is allowed imports what is not.
        child = "controlplane.agent.callable_child"
        return [sys.executable, "-m", child, self.function(action), ",".join(self.modules)]

    def module(self, action: Action) -> str | None:
        return self.function(action).partition(":")[0] or None

    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        return with_modules(dict(inherited))

    def build_report(self, child_exit: ChildExit) -> dict[str, Any]:
        no_result = "the process ended before the function returned"
        return (
            report_of(child_exit.result)
            or failure_of(child_exit)
            or failure_report("NO_RESULT", no_result, decode_text(child_exit.stderr))
        )


class HandlerRunner(CallableRunner):
    """Functions that this agent knows by a name. `functions`: by name, the function that is called. `environments`:
    what some of them find in their environment besides."""

    action_type = "handler"

    def __init__(
        self, functions: Mapping[str, str], environments: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        super().__init__()
        self.functions = functions
        self.environments = environments or {}
        self.tags = tuple(f"handler:{name}" for name in functions)

    def refuse(self, action: Action) -> None:
        if (name := str(action.get("name"))) not in self.functions:
            raise ActionNotAllowed(f"this agent has no handler {name}")

    def function(self, action: Action) -> str:
        return self.functions[str(action.get("name"))]

    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        return super().environment(action, {**inherited, **self.environments.get(str(action.get("name")), {})})


def failure_of(child_exit: ChildExit) -> dict[str, Any] | None:
    """The report of a process that failed; None: it ended well."""
    if child_exit.problem:
        return failure_report("CANNOT_START", decode_text(child_exit.problem.encode(errors="replace")))
    status, stderr = child_exit.status, decode_text(child_exit.stderr)
    if status < 0:
        return failure_report("WORKER_CRASHED", f"the child process was killed by {_signal_name(-status)}", stderr)
    if status > 0:
        return failure_report(f"EXIT_{status}", f"exited with status {status}", stderr)
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
