"""Run actions in containers: the parts that docker, podman and kubectl have in common.

A container is named after its attempt, and labelled with job, attempt and agent. When the attempt has ended, its reaper
inspects and removes the container, even if the agent is dead or stopped. So the container is gone before the end is
reported, and before the fence.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
import socket
import subprocess
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import structlog

from controlplane.agent.fitness.memory import format_size
from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.machine_errors import MachineError, has_machine_text
from controlplane.agent.runners.runner import Action, CannotStart, Runner, job_environment
from controlplane.agent.runners.script import ScriptRunner

log = structlog.get_logger()
IMAGE = re.compile(r"[A-Za-z0-9][\w.\-/:@]*")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FILES = "/run/controlplane"
"""The folder for the files of an attempt in its container."""
NOT_STARTED = 125  # exit status of docker and podman if no container started
OUT_OF_MEMORY = re.compile(r"^(?:true|OOMKilled) (\S*)", re.MULTILINE)
"""The output of INSPECT (docker.py) if the kernel killed the code for its memory use. The group is the limit."""
UNREACHABLE_TEXT = re.compile(
    r"cannot connect to|unable to connect|daemon running|error during connect|connection reset"
    r"|connection (?:to the server \S+ was )?refused|i/o timeout|tls handshake timeout|name resolution|cannot be run",
    re.IGNORECASE,
)
"""Matches messages of docker, podman and kubectl that cannot reach their daemon or cluster."""
KILLED = 128 + signal.SIGKILL  # the exit status of a container that was killed
PATIENCE = 60.0  # seconds to remove containers of earlier agents


class ContainerRunner(Runner):
    """Run actions in containers.

    `program` is the command line tool. `agent` is the name by which containers are found again.
    """

    programs: ClassVar[tuple[str, ...]]

    def __init__(self, action_type: str, tags: Sequence[str], program: str, agent: str) -> None:
        self.action_type, self.tags, self.program = action_type, tags, program
        self.agent = hashlib.sha256(f"{agent}\0{socket.gethostname()}".encode()).hexdigest()[:32]

    @property
    def is_script(self) -> bool:
        """Return True if the action is a script: then its command runs, and not the image's own."""
        return self.action_type == ScriptRunner.action_type

    def refuse(self, action: Action) -> None:
        """Allow every action: the image limits what it can do."""

    def command_line(self, action: Action) -> list[str]:
        """Return the command in the container. Empty means the image's own command."""
        command = action.get("command")
        if command is None and not self.is_script:
            return []
        return ScriptRunner().command_line(action)

    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the container."""
        own = ScriptRunner().environment(action, {})
        if wrong := [name for name in own if not NAME.fullmatch(name)]:
            raise CannotStart(f"{wrong[0]!r} cannot be the name of a variable in a container")
        return own

    def build_command(
        self, item: dict[str, Any], files: Mapping[str, Path], inherited: Mapping[str, str]
    ) -> ChildCommand:
        action, image = item["job"]["action"], str(item["job"]["action"].get("image") or "")
        if not IMAGE.fullmatch(image):
            raise CannotStart(f"{image!r} cannot be the name of an image")
        own, name = self.environment(action, inherited), f"controlplane-{item['id']}"
        folder = self.share_files(files)
        inside = {variable: Path(FILES, path.name) for variable, path in files.items()} if folder else {}
        shared = next((path.parent for path in files.values()), None)
        fields = self.build_start(name, item, image, own | job_environment(item, inside), inherited, folder, shared)
        return ChildCommand(**{"stdin": b"", "cleanup": self.build_removal(name, folder), "is_own": True, **fields})

    def share_files(self, files: Mapping[str, Path]) -> Path | None:
        """Return the folder of the files, ready to be mounted. Raise OSError.

        Return None if the container cannot mount it.
        """
        return None

    @abstractmethod
    def build_start(
        self, name: str, item: dict[str, Any], image: str, environment: dict[str, str], inherited: Mapping[str, str],
        folder: Path | None, shared: Path | None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the fields of the ChildCommand that runs the container to its end. Raise CannotStart and OSError.

        `environment` is for the container alone. The program gets `inherited`. `folder` is mounted as FILES. `shared`
        is the folder of the attempt, mounted or not, or None.
        """

    @abstractmethod
    def build_removal(self, name: str, folder: Path | None) -> list[str]:
        """Return the command that writes how the container ended, kills it, and waits until it is gone."""

    @abstractmethod
    def build_clearances(self) -> list[list[str]]:
        """Return the commands that remove all containers of this agent, and ended containers whose reaper is dead."""

    def build_check(self) -> list[str]:
        return [self.program, "version"]

    def find_machine_error(self, child_exit: ChildExit) -> MachineError | None:
        text = decode_text(child_exit.stderr).strip()
        if child_exit.status == NOT_STARTED and (UNREACHABLE_TEXT.search(text) or has_machine_text(text)):
            return MachineError(text, self.build_check())
        return super().find_machine_error(child_exit)

    def labels(self, item: dict[str, Any]) -> dict[str, str]:
        return {
            "controlplane.job": str(item["job"]["id"]),
            "controlplane.attempt": str(item["id"]),
            "controlplane.number": str(item["number"]),
            "controlplane.agent": self.agent,
        }

    def build_report(self, child_exit: ChildExit) -> dict[str, Any]:
        if child_exit.status == NOT_STARTED:
            return failure_report("CANNOT_START", decode_text(child_exit.stderr).strip() or "no container started")
        if child_exit.status == KILLED and (seen := OUT_OF_MEMORY.search(child_exit.cleanup_output)):
            stderr = decode_text(child_exit.stderr)
            if seen[1] in ("", "0"):  # another process may have used the memory
                why = "its container was killed by the kernel, which had run out of memory"
                return failure_report("WORKER_CRASHED", why, stderr)
            limit = format_size(int(seen[1])) if seen[1].isdigit() else seen[1]
            why = f"the kernel killed it: its container may have {limit} of memory"
            return failure_report("OUT_OF_MEMORY", why, stderr)
        return ScriptRunner().build_report(child_exit)


def find_program(runner: type[ContainerRunner]) -> str | None:
    """Return the path of the first of the runner's programs on this machine, or None."""
    return next(filter(None, map(shutil.which, runner.programs)), None)


def clear_containers(runners: Sequence[Runner], environment: Mapping[str, str]) -> None:
    """Remove containers that a dead agent of this name and host left behind."""
    of_containers = [runner for runner in runners if isinstance(runner, ContainerRunner)]
    for argv in {tuple(argv) for runner in of_containers for argv in runner.build_clearances()}:
        try:
            done = subprocess.run(argv, env=dict(environment), capture_output=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("Containers of an earlier agent could not be listed", why=str(error))
            continue
        output = decode_text(done.stderr if done.returncode else done.stdout).strip()
        if done.returncode:
            log.warning("Containers of an earlier agent could not be removed", why=output[-1000:])
        elif output and "No resources found" not in output:
            log.warning("Removed containers of an earlier agent", containers=output[-1000:])
