"""Actions that run in a container, through the command line of docker or podman.

The container is named for its attempt, and labelled with job, attempt and agent. Its reaper has it looked at and
removed when the attempt has ended, also when its agent is dead or stopped: so it is gone before that is reported, and
by the fence.
"""

from __future__ import annotations

import hashlib
import json
import re
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

from controlplane.agent.child_process import ChildCommand, ChildExit
from controlplane.agent.logs import decode_text
from controlplane.agent.memory import format_size
from controlplane.agent.outcomes import failure_report
from controlplane.agent.runners import Action, CannotStart, Runner, ScriptRunner, job_environment

log = structlog.get_logger()
IMAGE = re.compile(r"[A-Za-z0-9][\w.\-/:@]*")
NAME = re.compile(r"[A-Za-z_]\w*")
OF_PROGRAM = ("DOCKER_", "CONTAINER", "HOME", "KUBE", "LD_", "PATH", "PYTHON", "XDG_")
"""Variables by which the program itself would be led astray: their values stand on its command line."""
FILES = "/run/controlplane"
"""Where the files of an attempt are in its container."""
NOT_BEGUN = 125  # its exit status when there was no container
REMOVE = 'ids=$("$0" ps --all --quiet --filter "$1") && { [ -z "$ids" ] || "$0" rm --force --volumes $ids; }'
"""Fails when it is not known whether there is one; `rm` alone fails when there is none."""
REMOVE_ENDED = (
    'ids=$("$0" ps --all --filter "$1" --filter status=exited --format "{{.ID}} {{.Status}}" '
    '| sed "/second/d; s/ .*//"); [ -z "$ids" ] || "$0" rm --force --volumes $ids'
)
"""What ended seconds ago is perhaps still looked at, by a reaper that lives."""
LOOK = (
    'seen=$("$0" container inspect --format "{{.State.OOMKilled}} {{.HostConfig.Memory}}" "$2"); '
    '[ ! -e "$3" ] || seen="true ${seen#* }"; (echo "$seen"); exec >/dev/null; '
)
"""Only a process of its own writes: nobody reads when the agent is dead, and that ends whoever writes."""
OUT_OF_MEMORY = re.compile(r"^(?:true|OOMKilled) (\S*)", re.MULTILINE)
"""What a look says of a container when the kernel killed code of it, with the memory that it may have, if that is
limited."""
KILLED = 128 + signal.SIGKILL  # the exit status of a container that was killed
PATIENCE = 60.0  # seconds to clear away what was left


class ContainerRunner(Runner):
    """`program` is the command line that it uses, `agent` the name by which its containers are found again."""

    programs: ClassVar[tuple[str, ...]]

    def __init__(self, action_type: str, tags: Sequence[str], program: str, agent: str) -> None:
        self.action_type, self.tags, self.program = action_type, tags, program  # type: ignore[misc]
        self.agent = hashlib.sha256(f"{agent}\0{socket.gethostname()}".encode()).hexdigest()[:32]

    @property
    def is_script(self) -> bool:
        """Its command is what counts, not what the image does by itself."""
        return self.action_type == ScriptRunner.action_type

    def refuse(self, action: Action) -> None:
        """What it may run is for its image to say."""

    def command_line(self, action: Action) -> list[str]:
        """What runs in the container; nothing: what its image says."""
        command = action.get("command")
        if command is None and not self.is_script:
            return []
        return ScriptRunner().command_line(action)

    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        """That of the container alone."""
        own = ScriptRunner().environment(action, {})
        if wrong := [name for name in own if not NAME.fullmatch(name)]:
            raise CannotStart(f"{wrong[0]!r} is no name of a variable in a container")
        return own

    def build_command(
        self, item: dict[str, Any], files: Mapping[str, Path], inherited: Mapping[str, str]
    ) -> ChildCommand:
        action, image = item["job"]["action"], str(item["job"]["action"].get("image") or "")
        if not IMAGE.fullmatch(image):
            raise CannotStart(f"{image!r} is no name of an image")
        own, name = self.environment(action, inherited), f"controlplane-{item['id']}"
        folder = self.share_files(files)
        inside = {variable: Path(FILES, path.name) for variable, path in files.items()} if folder else {}
        command = self.build_start(name, item, image, own | job_environment(item, inside), inherited, folder)
        return ChildCommand(**{"stdin": b"", **command}, cleanup=self.build_removal(name, folder))

    def share_files(self, files: Mapping[str, Path]) -> Path | None:
        """Their folder, ready to be mounted; None: such a container has none of this machine. Raises OSError."""
        return None

    @abstractmethod
    def build_start(
        self, name: str, item: dict[str, Any], image: str, environment: dict[str, str], inherited: Mapping[str, str],
        folder: Path | None,
    ) -> dict[str, Any]:  # fmt: skip
        """The fields of the ChildCommand that runs the container to its end. `folder`: it is mounted as FILES."""

    @abstractmethod
    def build_removal(self, name: str, folder: Path | None) -> list[str]:
        """What says how the container ended, ends it, and waits until it is gone."""

    @abstractmethod
    def build_clearances(self) -> list[list[str]]:
        """What ends all containers of this agent, and removes what has ended of any whose reaper is dead."""

    def labels(self, item: dict[str, Any]) -> dict[str, str]:
        return {
            "controlplane.job": str(item["job"]["id"]),
            "controlplane.attempt": str(item["id"]),
            "controlplane.number": str(item["number"]),
            "controlplane.agent": self.agent,
        }

    def build_report(self, child_exit: ChildExit) -> dict[str, Any]:
        if child_exit.status == NOT_BEGUN:
            return failure_report("CANNOT_START", decode_text(child_exit.stderr).strip() or "there was no container")
        if child_exit.status == KILLED and (seen := OUT_OF_MEMORY.search(child_exit.remains)):
            stderr = decode_text(child_exit.stderr)
            if seen[1] in ("", "0"):  # the memory may have been another's
                why = "its container was killed by the kernel, which had run out of memory"
                return failure_report("WORKER_CRASHED", why, stderr)
            limit = format_size(int(seen[1])) if seen[1].isdigit() else seen[1]
            why = f"the kernel killed it: its container may have {limit} of memory"
            return failure_report("OUT_OF_MEMORY", why, stderr)
        return ScriptRunner().build_report(child_exit)


class DockerRunner(ContainerRunner):
    """docker or podman."""

    programs = ("docker", "podman")

    def __init__(self, action_type: str, tags: Sequence[str], program: str, agent: str) -> None:
        super().__init__(action_type, tags, program, agent)
        self.is_podman = is_podman(program)

    def share_files(self, files: Mapping[str, Path]) -> Path | None:
        folders = {path.parent for path in files.values()}
        if len(folders) != 1 or ":" in str(folder := folders.pop()):  # which is what a volume's parts are divided by
            return None
        # The image says which user writes there; for others here the folder of all attempts is closed.
        folder.chmod(0o777)
        for path in files.values():
            if path.exists():
                path.chmod(0o666)
        return folder

    def build_start(
        self, name: str, item: dict[str, Any], image: str, environment: dict[str, str], inherited: Mapping[str, str],
        folder: Path | None,
    ) -> dict[str, Any]:  # fmt: skip
        action = item["job"]["action"]
        argv = [self.program, "run", "--interactive", "--name", name]
        for label, value in self.labels(item).items():
            argv += ["--label", f"{label}={value}"]
        of_program = {variable: environment[variable] for variable in environment if variable.startswith(OF_PROGRAM)}
        for variable in environment:
            # By their names alone: who lists processes does not read their values.
            argv += ["--env", f"{variable}={of_program[variable]}" if variable in of_program else variable]
        if folder:
            argv += ["--volume", f"{folder}:{FILES}:Z"]  # Z: of this container alone, where there is SELinux
        resources = action.get("resources") or {}
        options = {name: resources.get(name) for name in ("cpus", "memory")} | {"workdir": action.get("cwd")}
        argv += [f"--{option}={value}" for option, value in options.items() if value]
        argv += self._gpu_options(resources.get("gpus") or 0)
        command = self.command_line(action)
        if self.is_script:
            argv += [f"--entrypoint={command.pop(0)}"]
        env = {**inherited, **{key: value for key, value in environment.items() if key not in of_program}}
        stdin = json.dumps(item["job"].get("payload")).encode()
        # Before its version 5 podman does not say that code was killed: it leaves a file where it was started.
        cwd = str(folder) if folder and self.is_podman else None
        return {"argv": [*argv, image, *command], "env": env, "stdin": stdin, "cwd": cwd}

    def _gpu_options(self, number: int) -> list[str]:
        """podman takes `--gpus` and does nothing: its are devices by CDI."""
        if self.is_podman:
            return [f"--device=nvidia.com/gpu={gpu}" for gpu in range(number)]
        return [f"--gpus={number}"] if number else []

    def build_removal(self, name: str, folder: Path | None) -> list[str]:
        killed = str(folder / "oom") if folder else ""
        return ["/bin/sh", "-c", LOOK + REMOVE, self.program, f"name=^/?{name}$", name, killed]

    def build_clearances(self) -> list[list[str]]:
        # An agent without a name has another each time it starts, and containers do not remove themselves.
        ended = ["/bin/sh", "-c", REMOVE_ENDED, self.program, "label=controlplane.agent"]
        return [["/bin/sh", "-c", REMOVE, self.program, f"label=controlplane.agent={self.agent}"], ended]


@lru_cache
def is_podman(program: str) -> bool:
    """Also where it is called docker: by a link, or by a script that hands all on to it."""
    if Path(program).resolve().name == "podman":
        return True
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.startswith(b"podman")


def find_program(runner: type[ContainerRunner]) -> str | None:
    """The first of its programs that is there."""
    return next(filter(None, map(shutil.which, runner.programs)), None)


def clear_containers(runners: Sequence[Runner], environment: Mapping[str, str]) -> None:
    """Remove what an agent of this name and host left behind that is dead."""
    of_containers = [runner for runner in runners if isinstance(runner, ContainerRunner)]
    for argv in {tuple(argv) for runner in of_containers for argv in runner.build_clearances()}:
        try:
            done = subprocess.run(argv, env=dict(environment), capture_output=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("Containers that were left could not be looked for", why=str(error))
            continue
        output = decode_text(done.stderr if done.returncode else done.stdout).strip()
        if done.returncode:
            log.warning("Containers that were left could not be removed", why=output[-1000:])
        elif output and "No resources found" not in output:
            log.warning("Containers that were left are removed", containers=output[-1000:])
