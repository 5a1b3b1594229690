"""What this machine can run: found when the agent starts, and looked for again now and then."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from controlplane.agent.child_process import ChildCommand, ChildExit
from controlplane.agent.probe import SelfCordon
from controlplane.agent.supervisor import Supervisor

PATIENCE = 10.0  # seconds for all of them to answer
LOOK_INTERVAL = 60.0  # seconds
DOUBTED_INTERVAL = 5.0  # seconds, while one does not answer
FAILURES = 2  # in a row, before one counts as missing: the machine may have been busy
KEY = "runtime:"  # before its name: among the supervisor's children, which are attempts otherwise
MAY_FAIL = ("docker", "gpu")
"""Those that may cease to work though their program is there: a daemon, a driver. They are asked again."""
VERSION = re.compile(r"\d+(?:\.\d+)+")
COMMANDS: dict[str, list[str]] = {
    "docker": ["docker", "version", "--format", "{{.Server.Version}}"],  # a docker without its daemon runs nothing
    "gpu": ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
    "java": ["java", "-version"],
    "kubectl": ["kubectl", "version", "--client"],
    "node": ["node", "--version"],
    "podman": ["podman", "version", "--format", "{{.Client.Version}}"],
    "shell": ["sh", "-c", "echo sh"],
}
"""By the name of a runtime what answers with its version; it is there if that exits with 0."""


def find_runtimes(names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The version of each that is there, or what else it says of itself. Starts processes, all at once."""
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
    """Those whose program has gone. Starts nothing."""
    return [name for name in sorted(names) if not shutil.which(COMMANDS[name][0])]


class RuntimeWatch:
    """Jobs come here for the tags that this worker was registered with: without the runtimes they would fail, one after
    the other, and soonest here. While one is missing the worker is cordoned; `on_change` is called when there is
    something new to say."""

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
        self._asked: dict[str, float] = {}  # those that have not answered yet, until when they have time (monotonic)
        self._failures = Counter[str]()  # in a row

    def look(self) -> None:
        """Once in a while."""
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
                self._supervisor.start_child(f"{KEY}{name}", command)
                self._asked[name] = now + PATIENCE

    def record_exit(self, child_exit: ChildExit) -> None:
        """One has answered, or was killed since it did not."""
        name = child_exit.key.removeprefix(KEY)
        is_overdue = time.monotonic() >= self._asked.pop(name)
        if child_exit.status == 0:
            del self._failures[name]
        elif child_exit.status != -signal.SIGKILL or is_overdue:  # else it was killed with all that runs here
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
