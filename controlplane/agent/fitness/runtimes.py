"""The runtimes of this machine: found when the agent starts, and checked again regularly."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from controlplane.agent.fitness.self_cordon import SelfCordon
from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.supervisor import Supervisor

PATIENCE = 10.0  # seconds for all commands together
LOOK_INTERVAL = 60.0  # seconds
DOUBTED_INTERVAL = 5.0  # seconds, while one fails
FAILURES = 2  # failures in a row before a runtime counts as missing, because the machine may be busy
KEY = "runtime:"  # prefix of a key among the supervisor's children; most of them are attempts
MAY_FAIL = ("docker", "gpu")
"""Runtimes that may fail although their program exists, because they need a daemon or a driver."""
VERSION = re.compile(r"\d+(?:\.\d+)+")
COMMANDS: dict[str, list[str]] = {
    "docker": ["docker", "version", "--format", "{{.Server.Version}}"],  # docker runs nothing without its daemon
    "gpu": ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
    "java": ["java", "-version"],
    "kubectl": ["kubectl", "version", "--client"],
    "node": ["node", "--version"],
    "podman": ["podman", "version", "--format", "{{.Client.Version}}"],
    "shell": ["sh", "-c", "echo sh"],
}
"""The command that prints the version of each runtime. The runtime exists if its command exits with 0."""


def find_runtimes(names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the version of each runtime found, or the first line of its output. Start all commands at once."""
    asked = {}
    for name in sorted(set(names) & set(COMMANDS)):
        if shutil.which(COMMANDS[name][0]):
            asked[name] = subprocess.Popen(
                COMMANDS[name],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
    versions = {}
    for name, process in asked.items():
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        if process.returncode == 0:
            text = output.decode(errors="replace").strip()
            version = VERSION.search(text)
            versions[name] = version[0] if version else text.partition("\n")[0][:100]
    return versions


def missing_runtimes(names: Iterable[str]) -> list[str]:
    """Return the runtimes that are no longer installed. This looks for their programs and does not run them."""
    return [name for name in sorted(names) if not shutil.which(COMMANDS[name][0])]


class RuntimeWatch:
    """Cordon the worker while one of its runtimes is missing.

    Jobs come here by the tags of the registration. Without the runtime they would fail quickly, one after the other.
    `on_change` is called when the cordon changes.
    """

    def __init__(
        self,
        names: Iterable[str],
        supervisor: Supervisor,
        environment: Mapping[str, str],
        cordon: SelfCordon,
        on_change: Callable[[], None],
    ) -> None:
        self.missing: list[str] = []
        self._names, self._cordon, self._on_change = list(names), cordon, on_change
        self._supervisor, self._environment = supervisor, environment
        self._look_at = 0.0  # monotonic
        self._asked: dict[str, float] = {}  # deadlines (monotonic) of running checks, by runtime
        self._failures = Counter[str]()  # failures in a row, by runtime

    def look(self) -> None:
        """Check the runtimes if that is due, and kill checks that take too long."""
        now = time.monotonic()
        for name, until in self._asked.items():
            if now >= until:
                self._supervisor.kill_child(f"{KEY}{name}")
        if now < self._look_at:
            return
        self._look_at = now + (DOUBTED_INTERVAL if self._failures else LOOK_INTERVAL)
        self._judge()
        for name in MAY_FAIL:
            if name in self._names and name not in self._asked and name not in missing_runtimes(self._names):
                command = ChildCommand(COMMANDS[name], dict(self._environment), b"")
                with suppress(OSError):  # machine_watch.py finds the problem
                    self._supervisor.start_child(f"{KEY}{name}", command)
                    self._asked[name] = now + PATIENCE

    def record_exit(self, child_exit: ChildExit) -> None:
        """Record the result of a check that has ended."""
        name = child_exit.key.removeprefix(KEY)
        is_overdue = time.monotonic() >= self._asked.pop(name)
        if child_exit.status == 0:
            del self._failures[name]
        elif child_exit.status != -signal.SIGKILL or is_overdue:  # otherwise it was killed together with all code
            self._failures[name] += 1
            self._look_at = min(self._look_at, time.monotonic() + DOUBTED_INTERVAL)
        self._judge()

    def _judge(self) -> None:
        failing = {name for name, failures in self._failures.items() if failures >= FAILURES}
        missing = sorted({*missing_runtimes(self._names), *failing})
        if missing == self.missing:
            return
        self.missing = missing
        if missing:
            gone = "no longer on this machine, or broken" if failing else "no longer on this machine"
            self._cordon.cordon(f"{gone}: {', '.join(missing)}", "runtimes")
        else:
            self._cordon.lift("the runtimes are back", "runtimes")
        self._on_change()


def tags_of(names: Iterable[str]) -> list[str]:
    return [f"runtime:{name}" for name in names]
