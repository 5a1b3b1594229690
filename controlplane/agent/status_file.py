"""A small file that says whether the agent is heard, and `--check`, which reads it (a Kubernetes probe)."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

import psutil

from controlplane.agent.fence import read_uptime


def runtime_directory() -> Path:
    """$CONTROLPLANE_RUNTIME_DIR, or one of this user's in the temporary directory."""
    configured = os.environ.get("CONTROLPLANE_RUNTIME_DIR")
    return Path(configured) if configured else Path(tempfile.gettempdir(), f"controlplane-agent-{os.getuid()}")


def status_path(name: str) -> Path:
    return runtime_directory() / f"{urllib.parse.quote(name, safe='')}.json"


def write_status(
    name: str, server: str, state: str, timeout: float, answered_at: float, problem: str | None = None
) -> None:
    """Note, atomically, that `server` was answered at `answered_at` (uptime clock). Raises OSError."""
    folder = runtime_directory()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder_status = folder.lstat()
    # Anyone may have made that name in a shared temporary directory before us.
    if not stat.S_ISDIR(folder_status.st_mode) or folder_status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a directory of ours")
    status = {
        "pid": os.getpid(),
        "process_started_at": psutil.Process().create_time(),
        "server": server,
        "state": state,
        "timeout_seconds": timeout,
        "heard_at_uptime": answered_at,
        "problem": problem,
    }
    target = status_path(name)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.write_text(json.dumps(status), encoding="utf-8")
    draft.replace(target)


def remove_status(name: str) -> None:
    status_path(name).unlink(missing_ok=True)


def is_running(name: str) -> bool:
    """Whether an agent of that name lives here, and it is not this process."""
    try:
        status: dict[str, Any] = json.loads(status_path(name).read_text(encoding="utf-8"))
        return status["pid"] != os.getpid() and _lives(status)
    except (OSError, ValueError, KeyError, psutil.Error):
        return False


def _lives(status: dict[str, Any]) -> bool:
    # Not equal to the last digit: it is derived from a wall clock that may have been set meanwhile.
    return abs(psutil.Process(status["pid"]).create_time() - status["process_started_at"]) < 5


def check_status(name: str | None) -> str | None:
    """None when that agent lives and is heard, else one line why not. Without a name: the only agent here."""
    if name is None:
        paths = sorted(runtime_directory().glob("*.json")) if runtime_directory().is_dir() else []
        if len(paths) != 1:
            count = len(paths) or "no"
            return f"{count} agents of this user in {runtime_directory()}{': say which, by --name' * bool(paths)}"
        path = paths[0]
    else:
        path = status_path(name)
    try:
        status: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        alive = _lives(status)
        age, timeout = read_uptime() - status["heard_at_uptime"], status["timeout_seconds"]
    except FileNotFoundError:
        return f"no agent is running: {path} is missing"
    except psutil.Error:
        alive = False
    except (OSError, ValueError, KeyError) as error:
        return f"{path} cannot be read: {error!r}"
    if not alive:
        return "the agent is not running (it ended without a word)"
    if age >= timeout:
        return f"the agent was not answered for {age:.0f} s (its timeout is {timeout:g} s)"
    return status.get("problem")
