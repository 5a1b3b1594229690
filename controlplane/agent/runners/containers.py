"""Run actions in containers with the command line of docker or podman.

A container is named after its attempt, and labelled with job, attempt and agent. When the attempt has ended, its reaper
inspects and removes the container, even if the agent is dead or stopped. So the container is gone before the end is
reported, and before the fence.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import structlog

from controlplane.agent.fitness.memory import format_size
from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.machine_errors import MachineError, has_machine_text
from controlplane.agent.runners.container_environment import NEEDS_SHELL, ContainerEnvironment, make_private_folder
from controlplane.agent.runners.runner import Action, CannotStart, Runner, job_environment
from controlplane.agent.runners.script import ScriptRunner

log = structlog.get_logger()
IMAGE = re.compile(r"[A-Za-z0-9][\w.\-/:@]*")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FILES = "/run/controlplane"
"""The folder for the files of an attempt in its container."""
NOT_STARTED = 125  # exit status of docker and podman if no container started
REMOVE = 'ids=$("$0" ps --all --quiet --filter "$1") && { [ -z "$ids" ] || "$0" rm --force --volumes $ids; }'
"""Fails if it cannot find out whether a container exists. `rm` alone would fail if none exists."""
REMOVE_ENDED = (
    'ids=$("$0" ps --all --filter "$1" --filter status=exited --format "{{.ID}} {{.Status}}" '
    '| sed "/second/d; s/ .*//"); [ -z "$ids" ] || "$0" rm --force --volumes $ids'
)
"""Skips containers that ended seconds ago, because a reaper may still inspect them."""
INSPECT = (
    'seen=$("$0" container inspect --format "{{.State.OOMKilled}} {{.HostConfig.Memory}}" "$2"); '
    '[ ! -e "$3" ] || seen="true ${seen#* }"; (echo "$seen"); exec >/dev/null; '
)
"""A subshell writes the output: if the agent is dead, writing ends that process and not the cleanup."""
OUT_OF_MEMORY = re.compile(r"^(?:true|OOMKilled) (\S*)", re.MULTILINE)
"""The output of INSPECT if the kernel killed the container's code for memory, with its memory limit if it has one."""
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


class DockerRunner(ContainerRunner):
    """Run containers with docker or podman."""

    programs = ("docker", "podman")

    def __init__(self, action_type: str, tags: Sequence[str], program: str, agent: str) -> None:
        super().__init__(action_type, tags, program, agent)
        self.is_podman = is_podman(program)

    def share_files(self, files: Mapping[str, Path]) -> Path | None:
        folders = {path.parent for path in files.values()}
        if len(folders) != 1 or ":" in str(folder := folders.pop()):  # the separator in --volume
            return None
        # The user in the container depends on the image. Other users of this machine cannot enter the parent folder.
        folder.chmod(0o777)
        for path in files.values():
            if path.exists():
                path.chmod(0o666)
        return folder

    def build_start(
        self, name: str, item: dict[str, Any], image: str, environment: dict[str, str], inherited: Mapping[str, str],
        folder: Path | None, shared: Path | None,
    ) -> dict[str, Any]:  # fmt: skip
        action, own = item["job"]["action"], ContainerEnvironment(environment)
        command = self.command_line(action)
        if own.renamed and not (self.is_script or isinstance(action.get("command"), str)):
            raise CannotStart(NEEDS_SHELL.format(name=next(iter(own.renamed.values()))))
        command = own.rename_in(command)
        argv = [self.program, "run", "--interactive", "--name", name]
        for label, value in self.labels(item).items():
            argv += ["--label", f"{label}={value}"]
        if folder:
            argv += ["--volume", f"{folder}:{FILES}:Z"]  # Z: with SELinux only this container gets access
        resources = action.get("resources") or {}
        options = {name: resources.get(name) for name in ("cpus", "memory")} | {"workdir": action.get("cwd")}
        argv += [f"--{option}={value}" for option, value in options.items() if value]
        argv += self._gpu_options(resources.get("gpus") or 0)
        if self.is_script:
            argv += [f"--entrypoint={command.pop(0)}"]
        stdin = json.dumps(item["job"].get("payload")).encode()
        # Before version 5, podman does not show that code was killed. It leaves a file in its working directory.
        cwd = str(folder) if folder and self.is_podman else None
        private = make_private_folder(shared)
        return {
            "argv": [*argv, *own.options(private), image, *command],
            "env": {**inherited, **own.carried},
            "stdin": stdin,
            "cwd": cwd,
            "cleanup": self.build_removal(name, folder, private),
        }

    def _gpu_options(self, number: int) -> list[str]:
        """Return the options for GPUs. podman ignores `--gpus` and needs CDI devices."""
        if self.is_podman:
            return [f"--device=nvidia.com/gpu={gpu}" for gpu in range(number)]
        return [f"--gpus={number}"] if number else []

    def build_removal(self, name: str, folder: Path | None, private: Path | None = None) -> list[str]:
        killed = str(folder / "oom") if folder else ""
        forget = f"rm -rf -- {shlex.quote(str(private))}; " if private else ""
        return ["/bin/sh", "-c", forget + INSPECT + REMOVE, self.program, f"name=^/?{name}$", name, killed]

    def build_clearances(self) -> list[list[str]]:
        # An agent without a name gets another name at each start, and containers do not remove themselves.
        ended = ["/bin/sh", "-c", REMOVE_ENDED, self.program, "label=controlplane.agent"]
        return [["/bin/sh", "-c", REMOVE, self.program, f"label=controlplane.agent={self.agent}"], ended]


@lru_cache
def is_podman(program: str) -> bool:
    """Return True if the program is podman, even if it is called docker (a link or a script)."""
    if Path(program).resolve().name == "podman":
        return True
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.startswith(b"podman")


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
