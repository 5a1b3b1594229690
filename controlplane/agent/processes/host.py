"""Facts about this host that identify its boot, its machine and its PID namespace."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

INITIAL_NAMESPACE = 0xEFFFFFFC
"""Inode of the PID namespace of the host itself, a constant of Linux. Containers have others."""
INITS = {"tini", "docker-init", "dumb-init", "catatonit"}
"""Names of init processes that end with the only program that they start."""
VISIBLE = ("off", "0")
"""Values of the mount option `hidepid` with which all users see all processes."""


@dataclass(frozen=True)
class Host:
    """Identity of the host. `boot` and `machine` are empty if the host does not show them."""

    boot: str
    machine: str
    namespace: int

    @property
    def is_container(self) -> bool:
        return self.namespace != INITIAL_NAMESPACE


@cache
def this_host() -> Host:
    """Return the facts about this host. Raise OSError where there is no /proc of Linux."""
    return Host(
        boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        machine=_read_machine_id(),
        namespace=os.stat("/proc/self/ns/pid").st_ino,
    )


def ends_namespace() -> bool:
    """Return True if the end of this process ends all processes of its PID namespace.

    The kernel ends a namespace with its process 1. The init processes that container engines add end with the only
    program that they start.
    """
    if not this_host().is_container:
        return False
    return os.getpid() == 1 or (os.getppid() == 1 and Path("/proc/1/comm").read_text().strip() in INITS)


def read_problem() -> str | None:
    """Return why this host cannot prove deaths, or None if it can."""
    if sys.platform != "linux":
        return "deaths are proved on Linux only"
    try:
        this_host()
    except OSError as error:
        return f"/proc cannot be read: {error}"
    if not hasattr(os, "pidfd_open"):
        return "this Python has no os.pidfd_open"
    return "/proc is mounted with hidepid: other processes are hidden" if is_proc_hidden() else None


def is_proc_hidden() -> bool:
    """Return True if /proc hides processes of other users from this process."""
    if os.geteuid() == 0:
        return False
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return True
    options = [f"{fields[5]},{fields[-1]}".split(",") for fields in mounts if fields[4] == "/proc"]
    hidden = [option.partition("=")[2] for found in options for option in found if option.startswith("hidepid=")]
    return any(value not in VISIBLE for value in hidden)


def _read_machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""
