"""What this agent was started to run, and nothing else."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.agent.containers import ContainerRunner, DockerRunner, find_program
from controlplane.agent.handlers import FUNCTION
from controlplane.agent.pods import PodRunner
from controlplane.agent.runners import ActionNotAllowed, CallableRunner, HandlerRunner, Runner, ScriptRunner

DJANGO_HANDLER = "django-task"
"""The handler of Django's tasks."""
DJANGO_FUNCTION = "jobs.django_task_runner:run"
"""What runs them, in the project that has the control plane among its apps."""
CONTAINERS: dict[str, type[ContainerRunner]] = {"docker": DockerRunner, "pod": PodRunner}
TAGS_OF_CONTAINERS = {"docker": "docker", "pod": "kubernetes"}
ACTION_TYPES = (*(runner.action_type for runner in (ScriptRunner, CallableRunner, HandlerRunner)), *CONTAINERS)
HANDLER_PATTERN = re.compile(rf"([^=\s]+)=({FUNCTION.pattern})")


@dataclass(frozen=True)
class ActionPolicy:
    """The runners of this agent, by the type of their actions; for a script that asks for one, with the runner's name:
    `script/docker`."""

    runners: dict[str, Runner]

    @classmethod
    def parse_options(
        cls,
        text: str | None,
        handlers: Iterable[str] = (),
        django: Mapping[str, str] | None = None,
        agent: str = "",
    ) -> ActionPolicy:
        """From `script,callable:myapp.*,handler` (None: the default) and handlers as `NAME=package.module:function`.
        `django`: the environment of Django's tasks, where they are run. `agent`: its name.

        Raises ValueError with a sentence for the user.
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
                raise ValueError(f"--allow {item}: it is one of {', '.join(ACTION_TYPES)}")
            if glob and kind != CallableRunner.action_type:
                raise ValueError(f"--allow {item}: only callable takes a pattern")
            allowed.setdefault(kind, []).append(glob)
        if not allowed:
            raise ValueError("--allow names nothing, so there would be nothing to run")
        if django is not None:
            allowed.setdefault(HandlerRunner.action_type, [""])
        if (HandlerRunner.action_type in allowed) != bool(functions):
            raise ValueError("--allow handler and --handler NAME=package.module:function need each other")
        modules = allowed.get(CallableRunner.action_type, [])
        # A bare `callable` allows every module, whatever else is said.
        every = (
            ScriptRunner(),
            CallableRunner(modules if all(modules) else ()),
            HandlerRunner(functions, {DJANGO_HANDLER: django or {}}),
        )
        runners: dict[str, Runner] = {runner.action_type: runner for runner in every if runner.action_type in allowed}
        return cls(runners | _container_runners(allowed, agent))

    def choose_runner(self, action: dict[str, Any]) -> Runner:
        """The runner of an action. Raises ActionNotAllowed with the reason."""
        kind = str(action.get("type"))
        if (place := action.get("runner") or "local") != "local":
            kind = f"{kind}/{place}"
        runner = self.runners.get(kind)
        if runner is None:
            raise ActionNotAllowed(f"actions of type {kind} are not allowed here")
        runner.refuse(action)
        return runner

    def list_tags(self, extra: Iterable[str] = ()) -> list[str]:
        """What the worker is matched by, sorted: the tags of the runners, the Python runtime, what the user added."""
        runtime = f"runtime:python{sys.version_info.major}.{sys.version_info.minor}"
        of_runners = {tag for runner in self.runners.values() for tag in runner.tags}
        return sorted({runtime, *filter(None, extra), *of_runners})


def takes_references(action: dict[str, Any]) -> bool:
    """Whether its payload may name secrets: not that of a Celery task, whose message its broker keeps, nor that of one
    of Django's, which reads its arguments from the database."""
    kind = action.get("type")
    return kind != "celery" and (kind, action.get("name")) != (HandlerRunner.action_type, DJANGO_HANDLER)


def queue_tag(queue: str) -> str:
    """What a worker is matched by that runs the tasks of a queue of Django's."""
    return f"queue:{queue}"


def _container_runners(allowed: Iterable[str], agent: str) -> dict[str, Runner]:
    """A script runs in containers where both are allowed. Raises ValueError for what has no program here."""
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
