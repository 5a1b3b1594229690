"""A callable: a Python function, called in a pool process or in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.from_code.outcomes import failure_report, machine_problem_of, report_of
from controlplane.agent.processes.child_process import ChildExit
from controlplane.agent.processes.environment import with_modules
from controlplane.agent.processes.machine_errors import MachineError
from controlplane.agent.runners.runner import Action, ActionNotAllowed, Runner, failure_of


class CallableRunner(Runner):
    """Call a Python function.

    `modules` are globs: the function must be defined in a module that matches one of them. Empty means any module.
    """

    action_type = "callable"
    tags: Collection[str] = ("python",)
    with_result = True

    def __init__(self, modules: Collection[str] = ()) -> None:
        self.modules = modules

    @property
    def is_pooled(self) -> bool:
        return bool(self.modules)

    def refuse(self, action: Action) -> None:
        module = self.function(action).partition(":")[0]
        if self.modules and not any(fnmatchcase(module, glob) for glob in self.modules):
            raise ActionNotAllowed(f"module {module} is not among {', '.join(self.modules)}")

    def function(self, action: Action) -> str:
        """Return the function to call, as `package.module:function`."""
        return str(action.get("path") or "")

    def command_line(self, action: Action) -> list[str]:
        # The child checks in which module the function is defined, because an allowed module may import others.
        child = "controlplane.agent.processes.callable_child"
        return [sys.executable, "-m", child, self.function(action), ",".join(self.modules)]

    def module(self, action: Action) -> str | None:
        return self.function(action).partition(":")[0] or None

    def named_modules(self, inherited: Mapping[str, str]) -> Iterable[tuple[str, dict[str, str]]]:
        for module in self.modules:
            if all(map(str.isidentifier, module.split("."))):  # not a pattern
                yield module, self.environment({}, inherited)

    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        return with_modules(dict(inherited))

    def build_check(self) -> list[str]:
        return [sys.executable, "-c", "pass"]

    def find_machine_error(self, child_exit: ChildExit) -> MachineError | None:
        if why := machine_problem_of(child_exit.result):
            return MachineError(why, self.build_check())
        if child_exit.status > 0 and not (child_exit.gave_signs or child_exit.result or child_exit.problem):
            complaint = decode_text(child_exit.stderr).strip().rpartition("\n")[2]
            return MachineError(f"Python did not start: {complaint}".rstrip(": "), self.build_check())
        return super().find_machine_error(child_exit)

    def build_report(self, child_exit: ChildExit) -> dict[str, Any]:
        no_result = "the process ended before the function returned"
        return (
            report_of(child_exit.result)
            or failure_of(child_exit)
            or failure_report("NO_RESULT", no_result, decode_text(child_exit.stderr))
        )
