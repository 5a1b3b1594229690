"""Run actions in containers with the command line of docker or podman."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from controlplane.agent.runners.container_environment import NEEDS_SHELL, ContainerEnvironment, make_private_folder
from controlplane.agent.runners.containers import FILES, PATIENCE, ContainerRunner
from controlplane.agent.runners.runner import CannotStart

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
