"""Which of the agent's environment the code of jobs gets, and what of it stays in no memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from controlplane.agent import reaper

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "CONTROLPLANE_TOKEN"  # noqa: S105 (its name)
OWN = {
    *("ALLOWED_HOSTS", "BEHIND_TLS", "CELERY_BROKER_URL", "CSRF_TRUSTED_ORIGINS", "HSTS_SECONDS", "SECRET_KEY"),
    "WEB_THREADS",
}
OWN_PREFIXES = ("ALERTS_", "CONTROLPLANE_", "DATABASE_", "JOBS_", "LIVENESS_")


def for_jobs(environment: Mapping[str, str], handed_on: Collection[str] = ()) -> dict[str, str]:
    """All but what configures a control plane, which is none of their business; `handed_on`: names that are."""
    return {name: value for name, value in environment.items() if name in handed_on or not _is_own(name)}


def with_modules(environment: dict[str, str]) -> dict[str, str]:
    """`environment` in which `python -m controlplane.agent.…` is found whatever directory the agent was started in."""
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**environment, "PYTHONPATH": os.pathsep.join([*paths, *sources()])}


def sources() -> list[str]:
    """The path of these modules where they are a clone; what is installed every Python of its environment finds."""
    return [str(ROOT)] if (ROOT / "manage.py").exists() else []


def close() -> None:
    """Close this process to others of its user, and with it to jobs: its memory, its files, its environment (Linux).

    The token goes from the environment that this process began with too, where `ps` would find it.
    """
    reaper.prctl(reaper.DUMPABLE, 0)
    if not os.environ.get(TOKEN):
        return
    getenv = ctypes.CDLL(None).getenv
    getenv.restype, getenv.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    if place := getenv(TOKEN.encode()):
        ctypes.memset(place, ord("x"), len(os.fsencode(os.environ[TOKEN])))
    del os.environ[TOKEN]


def _is_own(name: str) -> bool:
    return name in OWN or name.startswith(OWN_PREFIXES)
