"""Run actions as pods, with kubectl."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from controlplane.agent.from_code.report_lines import describe_lines
from controlplane.agent.limits import PAYLOAD_IN_ENVIRONMENT
from controlplane.agent.processes.child_process import ChildCommand
from controlplane.agent.processes.environment import with_modules
from controlplane.agent.runners.containers import ContainerRunner
from controlplane.agent.runners.runner import CannotStart

LOOK_AT_POD = (
    '{.status.containerStatuses[?(@.name=="job")].state.terminated.reason} '
    '{.spec.containers[?(@.name=="job")].resources.limits.memory}{"\\n"}'
)
REMOVE_POD = (
    '"$0" get pod "$1" --ignore-not-found --output="jsonpath=$2"; exec >/dev/null; '
    '"$0" delete pod "$1" --now --ignore-not-found'
)


class PodRunner(ContainerRunner):
    """Run an action as a pod that kubectl creates (pod_child.py). The payload is in JOB_PAYLOAD.

    A pod runs on another machine, so it has no files of its attempt. It reports by lines of its output
    (report_lines.py).
    """

    programs = ("kubectl",)

    def build_command(
        self, item: dict[str, Any], files: Mapping[str, Path], inherited: Mapping[str, str]
    ) -> ChildCommand:
        command = super().build_command(item, files, inherited)
        return replace(command, env={**command.env, **{variable: str(path) for variable, path in files.items()}})

    def build_start(
        self, name: str, item: dict[str, Any], image: str, environment: dict[str, str], inherited: Mapping[str, str],
        folder: Path | None, shared: Path | None,
    ) -> dict[str, Any]:  # fmt: skip
        if "JOB_PAYLOAD" not in environment:
            raise CannotStart(
                f"the payload is too large for a pod: it must have less than {PAYLOAD_IN_ENVIRONMENT} bytes"
            )
        manifest = self.build_manifest(name, item, image, environment | describe_lines(item["job"].get("checkpoint")))
        argv = [sys.executable, "-m", "controlplane.agent.runners.pod_child", self.program, name]
        return {"argv": argv, "env": with_modules(dict(inherited)), "stdin": json.dumps(manifest).encode()}

    def build_manifest(
        self, name: str, item: dict[str, Any], image: str, environment: Mapping[str, str]
    ) -> dict[str, Any]:
        action, command = item["job"]["action"], self.command_line(item["job"]["action"])
        resources = action.get("resources") or {}
        limits = {"cpu": resources.get("cpus"), "memory": _kubernetes_size(resources.get("memory"))}
        limits["nvidia.com/gpu"] = resources.get("gpus")
        is_text = isinstance(action.get("command"), str)
        container: dict[str, Any] = {
            "name": "job",
            "image": image,
            "env": [{"name": key, "value": value.replace("$(", "$$(")} for key, value in environment.items()],
            "resources": {"limits": {key: str(value) for key, value in limits.items() if value}},
        }
        if command:
            container["command" if self.is_script or is_text else "args"] = [
                part.replace("$(", "$$(") for part in command
            ]
        if action.get("cwd"):
            container["workingDir"] = action["cwd"]
        # A job must not call the cluster, so its pod gets no credentials of the service account.
        spec: dict[str, Any] = {
            "restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container],
        }  # fmt: skip
        if timeout := item["job"].get("timeout_seconds"):
            spec["activeDeadlineSeconds"] = max(
                1, round(timeout) + 60
            )  # only if the agent is dead: the agent's timeout is shorter
        metadata = {"name": name, "labels": self.labels(item)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def build_removal(self, name: str, folder: Path | None) -> list[str]:
        return ["/bin/sh", "-c", REMOVE_POD, self.program, name, LOOK_AT_POD]

    def build_clearances(self) -> list[list[str]]:
        selector = f"--selector=controlplane.agent={self.agent}"
        return [[self.program, "delete", "pods", selector, "--now", "--ignore-not-found"]]


def _kubernetes_size(size: str | None) -> str | None:
    """Return a size in Kubernetes notation: 512M here is 512Mi there."""
    return f"{size}i" if size else None
