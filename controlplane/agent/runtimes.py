"""What this machine can run: found when the agent starts, and looked for again now and then."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping

from controlplane.agent.probe import SelfCordon

PATIENCE = 10.0  # seconds for all of them to answer
LOOK_INTERVAL = 60.0  # seconds
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
    """Jobs come here for the tags that this worker was registered with: without the runtimes they would fail. While one
    is missing the worker is cordoned; `on_change` is called when there is something new to say."""

    def __init__(self, names: Iterable[str], cordon: SelfCordon, on_change: Callable[[], None]) -> None:
        self.missing: list[str] = []
        self._names, self._cordon, self._on_change = list(names), cordon, on_change
        self._look_at = 0.0  # monotonic

    def look(self) -> None:
        """Once in a while."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_INTERVAL
        missing = missing_runtimes(self._names)
        if missing == self.missing:
            return
        self.missing = missing
        if missing:
            self._cordon.cordon(f"no longer on this machine: {', '.join(missing)}", "runtimes")
        else:
            self._cordon.lift("the runtimes are back", "runtimes")
        self._on_change()


def tags_of(names: Iterable[str]) -> list[str]:
    return [f"runtime:{name}" for name in names]
