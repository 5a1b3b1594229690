"""The environment variables that the code of jobs gets, and protection of the agent's own environment and memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from controlplane.agent.processes import reaper

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "CONTROLPLANE_TOKEN"  # noqa: S105 (its name)
OWN = {
    *(
        "ALLOWED_HOSTS",
        "BEHIND_TLS",
        "BROKER_TIMEOUT",
        "CELERY_BROKER_URL",
        "CONSOLE_COLOR",
        "CONSOLE_NAME",
        "CONSOLE_URL",
        "CSRF_TRUSTED_ORIGINS",
        "HSTS_SECONDS",
    ),
    *("EXECUTOR_READY_FILE", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "WEB_THREADS"),
}
OWN_PREFIXES = ("ALERTS_", "CONTROLPLANE_", "DATABASE_", "JOBS_", "LIVENESS_", "OIDC_")


def for_jobs(environment: Mapping[str, str], handed_on: Collection[str] = ()) -> dict[str, str]:
    """Return `environment` without the variables that configure a control plane, except those in `handed_on`."""
    return {name: value for name, value in environment.items() if name in handed_on or not _is_own(name)}


def with_modules(environment: dict[str, str]) -> dict[str, str]:
    """Return `environment` with a PYTHONPATH on which `python -m controlplane.agent.…` is found from any directory."""
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**environment, "PYTHONPATH": os.pathsep.join([*paths, *sources()])}


@cache
def sources() -> tuple[str, ...]:
    """Return the path of a clone of the repository, or nothing. An installed package needs no path."""
    return (str(ROOT),) if (ROOT / "manage.py").exists() else ()


def close() -> None:
    """Protect this process from other processes of its user, and so from jobs: memory, files and environment (Linux).

    Remove the token from the initial environment too, because `ps` shows that.
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
