"""From an action to a command line, and from a child's end to a report."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controlplane.agent.environment import with_modules
from controlplane.agent.logs import decode_text
from controlplane.agent.outcomes import failure_report, report_of
from controlplane.agent.supervisor import RESULT_KEPT, ChildCommand, ChildExit

PAYLOAD_IN_ENVIRONMENT = 64 * 1024


class CannotStart(Exception):
    """The action does not describe something that can be started."""


def build_command(item: dict[str, Any], progress: Path, inherited: Mapping[str, str]) -> ChildCommand:
    """The command of a claimed attempt. `progress`: its file for that. `inherited`: what its environment begins with.

    Raises CannotStart.
    """
    action, payload = item["job"]["action"], json.dumps(item["job"].get("payload"))
    environment = dict(inherited)
    if action["type"] == "callable":
        environment = with_modules(environment)
        modules = ",".join(action.get("modules") or ())
        argv = [sys.executable, "-m", "controlplane.agent.callable_child", str(action.get("path") or ""), modules]
    else:
        argv = _script_arguments(action.get("command"))
        environment |= _parse_environment(action.get("env") or {})
    # Ours come last: a job's code must be able to trust its fencing token.
    environment |= {
        "JOB_ID": str(item["job"]["id"]),
        "JOB_ATTEMPT": str(item["number"]),
        "JOB_ATTEMPT_ID": str(item["id"]),
        "JOB_PROGRESS": str(progress),
    }
    of_step = {"JOB_EXECUTION": item["job"].get("execution"), "JOB_STEP": item["job"].get("step")}
    for name in ("JOB_PAYLOAD", *of_step):
        environment.pop(name, None)
    environment |= {name: str(value) for name, value in of_step.items() if value is not None}
    if len(payload) < PAYLOAD_IN_ENVIRONMENT:
        environment["JOB_PAYLOAD"] = payload
    is_call = action["type"] == "callable"
    cwd = None if is_call else action.get("cwd") or None
    return ChildCommand(argv, environment, payload.encode(), cwd, with_result=is_call)


def _script_arguments(command: Any) -> list[str]:
    if isinstance(command, str) and command.strip():
        return ["/bin/sh", "-c", command]
    if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
        return command
    raise CannotStart("a script's command is a text or a list of texts, not empty")


def _parse_environment(env: Any) -> dict[str, str]:
    if not isinstance(env, dict):
        raise CannotStart("a script's env is an object of texts")
    return {str(name): str(value) for name, value in env.items()}


def build_report(action: dict[str, Any], child_exit: ChildExit) -> dict[str, Any]:
    """`event` and its fields for code that ended without our doing."""
    if child_exit.problem:
        return failure_report("CANNOT_START", decode_text(child_exit.problem.encode(errors="replace")))
    if action["type"] == "callable" and (report := report_of(child_exit.result, RESULT_KEPT)):
        return report
    if child_exit.status < 0:
        name = _signal_name(-child_exit.status)
        return failure_report(
            "WORKER_CRASHED", f"the child process was killed by {name}", decode_text(child_exit.stderr)
        )
    if child_exit.status > 0:
        return failure_report(
            f"EXIT_{child_exit.status}", f"exited with status {child_exit.status}", decode_text(child_exit.stderr)
        )
    if action["type"] == "callable":
        return failure_report(
            "NO_RESULT", "the process ended before the function returned", decode_text(child_exit.stderr)
        )
    return {"event": "COMPLETED", "output": {"exit_code": 0, "stdout": decode_text(child_exit.stdout)}}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
