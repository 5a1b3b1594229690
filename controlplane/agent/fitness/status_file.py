"""A small file that shows whether heartbeats are answered, and `--check`, which reads it (a Kubernetes probe)."""

from __future__ import annotations

import errno
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
    """Return $CONTROLPLANE_RUNTIME_DIR, or a folder of this user in the temporary directory."""
    configured = os.environ.get("CONTROLPLANE_RUNTIME_DIR")
    return Path(configured) if configured else Path(tempfile.gettempdir(), f"controlplane-agent-{os.getuid()}")


def status_path(name: str) -> Path:
    return runtime_directory() / f"{urllib.parse.quote(name, safe='')}.json"


def write_status(
    name: str, server: str, state: str, timeout: float, answered_at: float, problem: str | None = None
) -> None:
    """Write, atomically, that `server` got a response at `answered_at` (uptime clock). Raise OSError."""
    folder = runtime_directory()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder_status = folder.lstat()
    # In a shared temporary directory, another user may have created this name first.
    if not stat.S_ISDIR(folder_status.st_mode) or folder_status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a directory of this user")
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
    """Return True if another process is a running agent with this name."""
    try:
        status = _read_status(status_path(name))
        return status["pid"] != os.getpid() and _lives(status)
    except (OSError, ValueError, KeyError, psutil.Error):
        return False


def _read_status(path: Path) -> dict[str, Any]:
    """Return the content of a status file. Raise OSError if the file or its folder belongs to another user.

    In a shared temporary directory any user may create these names. Check the open file and not its name, because the
    name may be replaced after the check.
    """
    folder = path.parent.lstat()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        for name, found in ((path.parent, folder), (path, status)):
            if found.st_uid != os.getuid():
                raise PermissionError(
                    errno.EPERM, f"{name} belongs to user {found.st_uid}, not to user {os.getuid()} who checks it"
                )
        if not stat.S_ISDIR(folder.st_mode) or not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, f"{path} is not a file in a directory")
        content: dict[str, Any] = json.load(file)
    return content


def _lives(status: dict[str, Any]) -> bool:
    # Allow a difference, because the value depends on the wall clock, which may have been set since.
    return abs(psutil.Process(status["pid"]).create_time() - float(status["process_started_at"])) < 5


def check_status(name: str | None) -> str | None:
    """Return None if the agent is alive and its heartbeats are answered, otherwise the reason on one line.

    Without a name, check the only agent of this user on this machine.
    """
    if name is None:
        paths = sorted(runtime_directory().glob("*.json")) if runtime_directory().is_dir() else []
        if len(paths) != 1:
            count = len(paths) or "no"
            return f"{count} agents of this user in {runtime_directory()}{': choose one with --name' * bool(paths)}"
        path = paths[0]
    else:
        path = status_path(name)
    try:
        status = _read_status(path)
        alive = _lives(status)
        age, timeout = read_uptime() - status["heard_at_uptime"], status["timeout_seconds"]
    except FileNotFoundError:
        return f"no agent is running: {path} is missing"
    except psutil.Error:
        alive = False
    except (OSError, ValueError, KeyError) as error:
        return f"{path} cannot be read: {error!r}"
    if not alive:
        return "the agent is not running (it was killed or has crashed)"
    if age >= timeout:
        return f"the agent had no response for {age:.0f} s (its timeout is {timeout:g} s)"
    return status.get("problem")
