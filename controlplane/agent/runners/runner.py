"""The base class of runners: the tags, permissions, commands and reports of one type of action."""

from __future__ import annotations

import json
import signal
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.limits import PAYLOAD_IN_ENVIRONMENT
from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.machine_errors import MachineError

Action = dict[str, Any]


class ActionNotAllowed(Exception):
    """An action that this agent does not run."""


class CannotStart(Exception):
    """The action describes nothing that can start."""


OF_SOME_ATTEMPTS = ("JOB_PAYLOAD", "JOB_EXECUTION", "JOB_STEP", "TRACEPARENT", "JOB_SERVER_ID")
"""Variables that only some attempts have. An attempt does not inherit them from the agent."""


class Runner(ABC):
    """Run actions of one type on this machine."""

    action_type: str
    tags: Collection[str]
    """Tags of a worker that has this runner. Jobs are matched by tags."""
    with_result: ClassVar[bool] = False
    """True if its code returns a result and gives signs of life."""

    @property
    def is_pooled(self) -> bool:
        """Return True if its code runs in pool processes by default: functions that the operator named."""
        return False

    @abstractmethod
    def refuse(self, action: Action) -> None:
        """Raise ActionNotAllowed if an action of this type may not run here."""

    @abstractmethod
    def command_line(self, action: Action) -> list[str]:
        """Return the command line of an action. Raise CannotStart."""

    @abstractmethod
    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the code, without the agent's own variables. Raise CannotStart."""

    def working_directory(self, action: Action) -> str | None:
        """Return the directory in which the code starts. None means the agent's own."""
        return None

    def module(self, action: Action) -> str | None:
        """Return the module of the function to call, or None if no function is called."""
        return None

    def named_modules(self, inherited: Mapping[str, str]) -> Iterable[tuple[str, dict[str, str]]]:
        """Yield the modules that the operator named, each with the environment of its functions."""
        return ()

    def is_own_program(self, action: Action) -> bool:
        """Return True if the agent chooses the program and not the job."""
        return True

    def build_check(self) -> list[str]:
        """Return a command that fails while this machine cannot run such actions."""
        return ["/bin/sh", "-c", ":"]

    def find_machine_error(self, child_exit: ChildExit) -> MachineError | None:
        """Return the error of this machine that kept the code from starting, or None."""
        return MachineError(child_exit.problem, self.build_check()) if child_exit.is_of_machine else None

    @abstractmethod
    def build_report(self, child_exit: ChildExit) -> dict[str, Any]:
        """Return `event` and its fields for code that the agent did not kill."""

    def build_command(
        self, item: dict[str, Any], files: Mapping[str, Path], inherited: Mapping[str, str]
    ) -> ChildCommand:
        """Return the command of a claimed attempt. Raise CannotStart.

        `files` are the attempt's files, by the variables that name them. `inherited` is the base of the environment.
        """
        job = item["job"]
        payload = json.dumps(job.get("payload"))
        environment = self.environment(job["action"], inherited)
        for name in OF_SOME_ATTEMPTS:
            environment.pop(name, None)
        # The agent's variables come last, because the code must be able to trust its fencing token.
        own = job_environment(item, files)
        environment |= own
        argv, cwd = self.command_line(job["action"]), self.working_directory(job["action"])
        return ChildCommand(
            argv, environment, payload.encode(), cwd, with_result=self.with_result, with_pulse=self.with_result,
            module=self.module(job["action"]), is_own=self.is_own_program(job["action"]),
            variables=own,
        )  # fmt: skip


def job_environment(item: dict[str, Any], files: Mapping[str, Path]) -> dict[str, str]:
    """Return the agent's variables for the code of a claimed attempt."""
    job = item["job"]
    environment = {"JOB_ID": job["id"], "JOB_ATTEMPT": item["number"], "JOB_ATTEMPT_ID": item["id"], **files}
    of_step = {
        "JOB_EXECUTION": job.get("execution"), "JOB_STEP": job.get("step"), "TRACEPARENT": job.get("traceparent"),
        "JOB_SERVER_ID": item.get("server"),
    }  # fmt: skip
    environment |= {name: value for name, value in of_step.items() if value is not None}
    payload = json.dumps(job.get("payload"))
    if len(payload) < PAYLOAD_IN_ENVIRONMENT:
        environment["JOB_PAYLOAD"] = payload
    return {name: str(value) for name, value in environment.items()}


def failure_of(child_exit: ChildExit) -> dict[str, Any] | None:
    """Return the report of a process that failed, or None if it exited with 0."""
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
