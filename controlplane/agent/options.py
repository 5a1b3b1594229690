"""The options of a worker, read from the parsed command line and the environment."""

from __future__ import annotations

import argparse
import math
import os
import platform
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.api.client import check_address
from controlplane.agent.api.leftovers import state_folder
from controlplane.agent.clean_text import reason
from controlplane.agent.fitness import runtimes
from controlplane.agent.fitness.memory import parse_size
from controlplane.agent.limits import AHEAD_LIMIT
from controlplane.agent.processes import environment
from controlplane.agent.runners.policy import ActionPolicy, queue_tag
from controlplane.agent.secrets.sources import PREFIX, SecretSources
from controlplane.agent.version import VERSION

log = structlog.get_logger()

MAX_TASKS_PER_CHILD = 1000
AT_ONCE_LIMIT = 1000


@dataclass(frozen=True)
class Options:
    url: str
    token: str
    name: str
    cluster: str
    tags: list[str]
    policy: ActionPolicy
    concurrency: int
    poll: float
    state: Path
    config: dict[str, Any]
    environment: dict[str, str]
    token_file: str | None = None
    task_timeout: float | None = None
    memory_limit: int | None = None
    max_tasks_per_child: int = MAX_TASKS_PER_CHILD
    max_memory_per_child: int | None = None
    isolation: str | None = None
    prefetch: int = AHEAD_LIMIT
    at_once: int = 1
    """Calls that run at once in one pool process."""
    given_tags: list[str] = field(default_factory=list)
    """Tags of the command line that the agent would not have by itself. An operator can change them."""
    slot_limit: int | None = None
    """Number of slots that an operator has chosen."""
    runtimes: dict[str, str] = field(default_factory=dict)
    probe: str | None = None
    probe_interval: float = 30.0
    probe_timeout: float = 10.0
    secrets: SecretSources = field(default_factory=SecretSources)
    has_fast_recovery: bool = True

    @property
    def slots(self) -> int:
        """Number of attempts that may run at once."""
        slots = self.concurrency * self.at_once
        return slots if self.slot_limit is None else min(slots, self.slot_limit)

    def with_config(self, slots: int, tags: list[str]) -> Options:
        """Return these options with the slots and tags that an operator has chosen."""
        processes, given = max(1, math.ceil(slots / self.at_once)), {*tags} - ({*self.tags} - {*self.given_tags})
        return replace(self, concurrency=processes, slot_limit=slots, tags=sorted(tags), given_tags=sorted(given))

    def with_runtimes(self, found: dict[str, str]) -> Options:
        """Return these options with the runtimes found on this machine, as tags and capabilities."""
        return replace(self, runtimes=found, tags=sorted({*self.tags, *runtimes.tags_of(found)}))

    def read_token(self) -> str:
        """Return the current content of the token file, or the token read at the start if the file cannot be read."""
        if self.token_file:
            try:
                return _read_token_file(self.token_file)
            except ValueError as error:
                log.warning("Using the token read at the start", why=str(error))
        return self.token

    def description(self) -> dict[str, Any]:
        """Return the body of a registration, without the instance id."""
        return {
            "type": "WORKER",
            "name": self.name,
            "cluster": self.cluster,
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "tags": self.tags,
            "given_tags": self.given_tags,
            "max_concurrent": self.slots,
            "capabilities": {
                "python": platform.python_version(),
                "platform": platform.platform(),
                **({"runtimes": self.runtimes} if self.runtimes else {}),
            },
            **({"config": self.config} if self.config else {}),
        }


def read_options(arguments: argparse.Namespace) -> Options:
    """Return the options of a worker. Raise ValueError with a message for the user."""
    token = _token(arguments)
    missing = [flag for flag, value in (("--url", arguments.url), ("--token-file", token)) if not value]
    if missing:
        raise ValueError(f"{' and '.join(missing)} must be set (or CONTROLPLANE_URL, CONTROLPLANE_TOKEN)")
    check_address(arguments.url)
    for name in ("poll", "probe_interval", "probe_timeout", "task_timeout"):
        seconds = getattr(arguments, name)
        if seconds is not None and seconds <= 0:
            raise ValueError(f"--{name.replace('_', '-')} is {seconds:g} s but must be more than 0")
    for name in ("concurrency", "max_tasks_per_child"):
        if (number := getattr(arguments, name)) < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {number} but must be at least 1")
    if not 0 <= arguments.prefetch <= AHEAD_LIMIT:
        raise ValueError(f"--prefetch is {arguments.prefetch} but must be from 0 to {AHEAD_LIMIT}")
    if problem := _problem_at_once(arguments):
        raise ValueError(f"--async {arguments.at_once} {problem}")
    if unknown := {*_parts(arguments.runtimes)} - {*runtimes.COMMANDS}:
        raise ValueError(f"--runtimes {min(unknown)} is unknown: use {', '.join(runtimes.COMMANDS)}")
    asked = {
        "heartbeat_interval_seconds": arguments.heartbeat_interval,
        "timeout_seconds": arguments.timeout,
        "termination_grace_period_seconds": arguments.grace,
        "worker_task_restart_strategy": arguments.restart_strategy,
    }
    name = arguments.name or f"{socket.gethostname()}-{os.getpid()}"
    policy = ActionPolicy.parse_options(arguments.allow, arguments.handler, _django_environment(arguments.django), name)
    queues = [queue_tag(queue) for queue in _parts(arguments.queues)] if arguments.django else []
    given_tags = {*_parts(arguments.tags), *queues}
    return Options(
        url=arguments.url,
        token=token,
        name=name,
        cluster=arguments.cluster,
        tags=policy.list_tags(given_tags),
        given_tags=sorted(given_tags - {*policy.list_tags()}),
        policy=policy,
        concurrency=arguments.concurrency,
        poll=arguments.poll,
        state=state_folder(arguments.state_dir, arguments.name),
        config={key: value for key, value in asked.items() if value is not None},
        token_file=arguments.token_file,
        environment=environment.for_jobs(os.environ, {*_parts(arguments.pass_env)} - {environment.TOKEN}),
        task_timeout=arguments.task_timeout,
        memory_limit=_size(arguments, "memory_limit"),
        max_tasks_per_child=arguments.max_tasks_per_child,
        max_memory_per_child=_size(arguments, "max_memory_per_child") or _half(_size(arguments, "memory_limit")),
        isolation="pool" if arguments.at_once > 1 else arguments.isolation,
        at_once=arguments.at_once,
        prefetch=arguments.prefetch,
        probe=arguments.probe,
        probe_interval=arguments.probe_interval,
        probe_timeout=arguments.probe_timeout,
        secrets=_secret_sources(arguments),
        has_fast_recovery=not arguments.no_fast_recovery,
    )


def _problem_at_once(arguments: argparse.Namespace) -> str:
    """Return what is wrong with --async, or an empty text."""
    if not 1 <= arguments.at_once <= AT_ONCE_LIMIT:
        return f"must be from 1 to {AT_ONCE_LIMIT}"
    if arguments.at_once == 1:
        return ""
    if sys.platform != "linux":
        return "needs Linux, because other systems have no pool processes"
    if arguments.isolation == "process":
        return "cannot be used with --isolation process: leave one of them out"
    if arguments.memory_limit is not None:
        return (
            "cannot be used with --memory-limit, because its tasks share a process: use --max-memory-per-child instead"
        )
    return ""


def _size(arguments: argparse.Namespace, name: str) -> int | None:
    """Return the bytes of an option, or None. Raise ValueError with a message for the user."""
    try:
        return None if (text := getattr(arguments, name)) is None else parse_size(text)
    except ValueError as error:
        raise ValueError(f"--{name.replace('_', '-')} {error}") from None


def _half(limit: int | None) -> int | None:
    return None if limit is None else max(1, limit // 2)


def _token(arguments: argparse.Namespace) -> str:
    if arguments.token and arguments.token_file:
        raise ValueError("--token and --token-file are both set: use one of them")
    if not arguments.token_file:
        return str(arguments.token or os.environ.get(environment.TOKEN) or "")
    return _read_token_file(arguments.token_file)


def _read_token_file(path: str) -> str:
    """Return the token in a file. Raise ValueError if the file is empty or cannot be read."""
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--token-file {path} cannot be read: {reason(error)}") from None
    if not token:
        raise ValueError(f"--token-file {path} is empty")
    return token


def _secret_sources(arguments: argparse.Namespace) -> SecretSources:
    folder = Path(arguments.secrets_dir).absolute() if arguments.secrets_dir else None
    if folder and not folder.is_dir():
        raise ValueError(f"--secrets-dir {arguments.secrets_dir} is not a folder")
    return SecretSources(
        folder,
        arguments.secret_command,
        {name: value for name, value in os.environ.items() if name.startswith(PREFIX)},
        {name: value for name, value in os.environ.items() if name != environment.TOKEN},
    )


def _django_environment(settings: str | None) -> dict[str, str] | None:
    """Return the environment for the tasks of a Django project, without the token and with the settings module."""
    if settings is None:
        return None
    return {
        **{
            name: value
            for name, value in os.environ.items()
            if name != environment.TOKEN and not name.startswith(PREFIX)
        },
        "DJANGO_SETTINGS_MODULE": settings,
    }


def _parts(text: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in text.split(",")))
