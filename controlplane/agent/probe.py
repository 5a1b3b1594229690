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

from controlplane.agent.fence import uptime


def directory() -> Path:
    """$CONTROLPLANE_RUNTIME_DIR, or one of this user's in the temporary directory."""
    configured = os.environ.get("CONTROLPLANE_RUNTIME_DIR")
    return Path(configured) if configured else Path(tempfile.gettempdir(), f"controlplane-agent-{os.getuid()}")


def path_of(name: str) -> Path:
    return directory() / f"{urllib.parse.quote(name, safe='')}.json"


def write(name: str, server: str, state: str, timeout: float, heard_at: float) -> None:
    """Note, atomically, that `server` was answered at `heard_at` (uptime clock). Raises OSError."""
    folder = directory()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    # Anyone may have made that name in a shared temporary directory before us.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a directory of ours")
    status = {
        "pid": os.getpid(),
        "process_started_at": psutil.Process().create_time(),
        "server": server,
        "state": state,
        "timeout_seconds": timeout,
        "heard_at_uptime": heard_at,
    }
    target = path_of(name)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.write_text(json.dumps(status), encoding="utf-8")
    draft.replace(target)


def forget(name: str) -> None:
    path_of(name).unlink(missing_ok=True)


def check(name: str | None) -> str | None:
    """None when that agent lives and is heard, else one line why not. Without a name: the only agent here."""
    if name is None:
        found = sorted(directory().glob("*.json")) if directory().is_dir() else []
        if len(found) != 1:
            return f"{len(found) or 'no'} agents of this user in {directory()}{': say which, by --name' * bool(found)}"
        path = found[0]
    else:
        path = path_of(name)
    try:
        status: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        # Not equal to the last digit: it is derived from a wall clock that may have been set meanwhile.
        alive = abs(psutil.Process(status["pid"]).create_time() - status["process_started_at"]) < 5
        age, timeout = uptime() - status["heard_at_uptime"], status["timeout_seconds"]
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
    return None
