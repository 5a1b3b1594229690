"""The actions that this agent may run, as its command line allows them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.agent.from_code.handlers import FUNCTION
from controlplane.agent.runners.callable import CallableRunner
from controlplane.agent.runners.containers import ContainerRunner, find_program
from controlplane.agent.runners.docker import DockerRunner
from controlplane.agent.runners.handler import HandlerRunner
from controlplane.agent.runners.pods import PodRunner
from controlplane.agent.runners.runner import ActionNotAllowed, Runner
from controlplane.agent.runners.script import ScriptRunner

DJANGO_HANDLER = "django-task"
"""The name of the handler for Django's tasks."""
DJANGO_FUNCTION = "jobs.django_task_runner:run"
"""The function that runs them. The project must have the control plane among its apps."""
CONTAINERS: dict[str, type[ContainerRunner]] = {"docker": DockerRunner, "pod": PodRunner}
TAGS_OF_CONTAINERS = {"docker": "docker", "pod": "kubernetes"}
ACTION_TYPES = (*(runner.action_type for runner in (ScriptRunner, CallableRunner, HandlerRunner)), *CONTAINERS)
HANDLER_PATTERN = re.compile(rf"([^=\s]+)=({FUNCTION.pattern})")


@dataclass(frozen=True)
class ActionPolicy:
    """The runners of this agent, by type of action.

    The key of a script in a container also has the engine: `script/docker`.
    """

    runners: dict[str, Runner]

    @classmethod
    def parse_options(
        cls,
        text: str | None,
        handlers: Iterable[str] = (),
        django: Mapping[str, str] | None = None,
        agent: str = "",
    ) -> ActionPolicy:
        """Return the policy for `--allow` and `--handler`. Raise ValueError with a message for the user.

        `text` is like `script,callable:myapp.*,handler`; None means the default. `handlers` are
        `NAME=package.module:function`. `django` is the environment for Django's tasks, or None. `agent` is the agent's
        name.
        """
        functions = _parse_handlers(handlers)
        if django is not None:
            functions[DJANGO_HANDLER] = DJANGO_FUNCTION
        if text is None:
            text = "script,callable,handler" if functions else "script,callable"
        allowed: dict[str, list[str]] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            kind, _, glob = item.partition(":")
            if kind not in ACTION_TYPES:
                raise ValueError(f"--allow {item} is unknown: use {', '.join(ACTION_TYPES)}")
            if glob and kind != CallableRunner.action_type:
                raise ValueError(f"--allow {item}: only callable takes a pattern")
            allowed.setdefault(kind, []).append(glob)
        if not allowed:
            raise ValueError("--allow is empty: name at least one kind of action")
        if django is not None:
            allowed.setdefault(HandlerRunner.action_type, [""])
        if (HandlerRunner.action_type in allowed) != bool(functions):
            raise ValueError("--allow handler and --handler NAME=package.module:function need each other")
        modules = allowed.get(CallableRunner.action_type, [])
        # A bare `callable` allows every module, even next to a pattern.
        every = (
            ScriptRunner(),
            CallableRunner(modules if all(modules) else ()),
            HandlerRunner(functions, {DJANGO_HANDLER: django or {}}),
        )
        runners: dict[str, Runner] = {runner.action_type: runner for runner in every if runner.action_type in allowed}
        return cls(runners | _container_runners(allowed, agent))

    def choose_runner(self, action: dict[str, Any]) -> Runner:
        """Return the runner of an action. Raise ActionNotAllowed with the reason."""
        kind = str(action.get("type"))
        if (place := action.get("runner") or "local") != "local":
            kind = f"{kind}/{place}"
        runner = self.runners.get(kind)
        if runner is None:
            raise ActionNotAllowed(f"actions of type {kind} are not allowed here")
        runner.refuse(action)
        return runner

    def list_tags(self, extra: Iterable[str] = ()) -> list[str]:
        """Return the sorted tags of this worker: of the runners, of the Python runtime, and the `extra` ones."""
        runtime = f"runtime:python{sys.version_info.major}.{sys.version_info.minor}"
        of_runners = {tag for runner in self.runners.values() for tag in runner.tags}
        return sorted({runtime, *filter(None, extra), *of_runners})


def takes_references(action: dict[str, Any]) -> bool:
    """Return True if the payload of an action may name secrets.

    That is not possible for a Celery task, because the broker keeps its message. It is not possible for a Django task
    either, because that reads its arguments from the database.
    """
    kind = action.get("type")
    return kind != "celery" and (kind, action.get("name")) != (HandlerRunner.action_type, DJANGO_HANDLER)


def queue_tag(queue: str) -> str:
    """Return the tag of a worker that runs the tasks of this Django queue."""
    return f"queue:{queue}"


def _container_runners(allowed: Iterable[str], agent: str) -> dict[str, Runner]:
    """Return the runners for containers. A script runs in containers if both kinds are allowed.

    Raise ValueError if this machine does not have the program.
    """
    runners: dict[str, Runner] = {}
    for kind, runner in CONTAINERS.items():
        if kind not in allowed:
            continue
        program, tag = find_program(runner), TAGS_OF_CONTAINERS[kind]
        if program is None:
            raise ValueError(f"--allow {kind}: there is no {' or '.join(runner.programs)} on this machine")
        runners[kind] = runner(kind, [tag], program, agent)
        if ScriptRunner.action_type in allowed:
            script = ScriptRunner.action_type
            runners[f"{script}/{kind}"] = runner(script, [script, tag], program, agent)
    return runners


def _parse_handlers(definitions: Iterable[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in definitions:
        match = HANDLER_PATTERN.fullmatch(text)
        if not match:
            raise ValueError(f"--handler {text}: write NAME=package.module:function")
        if match[1] in named:
            raise ValueError(f"--handler {text}: {match[1]} is {named[match[1]]} already")
        named[match[1]] = match[2]
    return named
