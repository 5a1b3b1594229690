"""What the user says on the command line."""

from __future__ import annotations

import argparse
import os
import platform
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controlplane.agent import environment, runtimes
from controlplane.agent.clean_text import reason
from controlplane.agent.client import check_address
from controlplane.agent.leftovers import state_folder
from controlplane.agent.memory import parse_size
from controlplane.agent.policy import ActionPolicy, queue_tag
from controlplane.agent.secret_sources import PREFIX, SecretSources

VERSION = "0.1.0"
EXIT_STATUSES = (
    "exit status: 0 told to end, all finished, reported and heard; 1 ended otherwise (killed what was left, not heard, "
    "declared dead or disconnected); 2 could not begin (an option, the token, a refused registration). --check: 0 or 1."
)
MAX_TASKS_PER_CHILD = 1000
STRATEGIES = ("AFTER_TERMINATION_GRACE_PERIOD", "IMMEDIATELY", "NEVER")


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
    task_timeout: float | None = None
    memory_limit: int | None = None
    max_tasks_per_child: int = MAX_TASKS_PER_CHILD
    runtimes: dict[str, str] = field(default_factory=dict)
    probe: str | None = None
    probe_interval: float = 30.0
    probe_timeout: float = 10.0
    secrets: SecretSources = field(default_factory=SecretSources)

    def with_runtimes(self, found: dict[str, str]) -> Options:
        """With what was found on this machine as tags and capabilities."""
        return replace(self, runtimes=found, tags=sorted({*self.tags, *runtimes.tags_of(found)}))

    def description(self) -> dict[str, Any]:
        """The body of a registration, but for the instance id."""
        return {
            "type": "WORKER",
            "name": self.name,
            "cluster": self.cluster,
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "tags": self.tags,
            "max_concurrent": self.concurrency,
            "capabilities": {
                "python": platform.python_version(),
                "platform": platform.platform(),
                **({"runtimes": self.runtimes} if self.runtimes else {}),
            },
            **({"config": self.config} if self.config else {}),
        }


def build_parser() -> argparse.ArgumentParser:
    env = os.environ.get
    parser = argparse.ArgumentParser(
        prog="controlplane-agent",
        allow_abbrev=False,
        description="Runs a worker of a control plane.",
        epilog=EXIT_STATUSES,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {VERSION}")
    add("--url", default=env("CONTROLPLANE_URL"), help="address of the control plane (default: CONTROLPLANE_URL)")
    add(
        "--token-file",
        metavar="FILE",
        help="file that holds a token of the role worker (default: the variable CONTROLPLANE_TOKEN)",
    )
    add("--token", help="the token itself; everybody who may list the processes of this machine can read it")
    add("--name", help="name of this worker (default: host name and process id)")
    add("--cluster", default="default")
    add("--tags", default="", metavar="A,B", help="tags, in addition to those of what it may run")
    add(
        "--allow",
        metavar="KINDS",
        help="kinds: script, callable, callable:GLOB of modules, handler (default: these); docker (or podman), pod",
    )
    add(
        "--handler",
        action="append",
        default=[],
        metavar="NAME=MODULE:FUNCTION",
        help="function to call for jobs with that handler",
    )
    add(
        "--django", metavar="SETTINGS", help="run the tasks of a Django project, with its settings module and this "
        "environment; where the control plane is among its apps, and TASKS names its backend",
    )  # fmt: skip
    add("--queues", default="default", metavar="A,B", help="of --django (default: default)")
    add(
        "--pass-env", default="", metavar="A,B",
        help="environment variables that jobs get although they configure a control plane (DATABASE_URL, SECRET_KEY, "
        "CONTROLPLANE_*, ...); they get all others anyway",
    )  # fmt: skip
    add(
        "--secrets-dir", metavar="FOLDER",
        help=f"folder of files that hold the secrets which jobs name, a file each (or variables: {PREFIX}NAME)",
    )  # fmt: skip
    add(
        "--secret-command", metavar="COMMAND",
        help="shell command that prints the secret whose name is its $1, where there is no such file or variable",
    )  # fmt: skip
    add(
        "--runtimes", default=",".join(runtimes.COMMANDS), metavar="A,B",
        help="what to look for on this machine; what is found is a tag like runtime:node (default: %(default)s)",
    )  # fmt: skip
    add(
        "--concurrency",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="how many jobs to run at once (default: number of CPUs)",
    )
    add(
        "--poll",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="seconds between claims that bring nothing, where no hints come",
    )
    add(
        "--probe",
        metavar="COMMAND",
        help="shell command, or package.module:function; while it fails this worker is cordoned, with its last line as "
        "the reason",
    )
    add("--task-timeout", type=float, metavar="SECONDS", help="timeout of jobs that have none of their own")
    add(
        "--memory-limit", metavar="SIZE",
        help="memory that each task may use with all processes that it starts, like 512M or 2G: one that uses more is "
        "killed, and FAILED with OUT_OF_MEMORY (Linux)",
    )  # fmt: skip
    add(
        "--max-tasks-per-child", type=int, default=MAX_TASKS_PER_CHILD, metavar="N",
        help="how many callables and handlers are forked from one process that has imported their module "
        f"(default: {MAX_TASKS_PER_CHILD}; 1: each imports it again; Linux)",
    )  # fmt: skip
    add(
        "--probe-interval", type=float, default=30.0, metavar="SECONDS", help="seconds between two probes (default: 30)"
    )
    add(
        "--probe-timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="seconds that a probe may take (default: 10)",
    )
    add("--heartbeat-interval", type=float, metavar="SECONDS")
    add("--timeout", type=float, metavar="SECONDS", help="seconds of silence after which this worker is disconnected")
    add("--grace", type=float, metavar="SECONDS", help="the termination grace period")
    add("--restart-strategy", choices=STRATEGIES)
    add(
        "--state-dir", default=env("CONTROLPLANE_STATE_DIR"), metavar="FOLDER",
        help="folder for reports that were not answered before the end; the next start under the same name sends them "
        "(or CONTROLPLANE_STATE_DIR; default: ~/.local/state/controlplane-agent)",
    )  # fmt: skip
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    add(
        "--check",
        action="store_true",
        help="exit with 0 if the agent of that name is alive and its heartbeats are answered, else with 1",
    )
    return parser


def read_options(arguments: argparse.Namespace) -> Options:
    """Raises ValueError with a sentence for the user."""
    token = _token(arguments)
    missing = [flag for flag, value in (("--url", arguments.url), ("--token-file", token)) if not value]
    if missing:
        raise ValueError(f"{' and '.join(missing)} must be given (or CONTROLPLANE_URL, CONTROLPLANE_TOKEN)")
    check_address(arguments.url)
    if arguments.concurrency < 1 or arguments.poll <= 0:
        raise ValueError("--concurrency is at least 1, --poll more than 0")
    if arguments.probe_interval <= 0 or arguments.probe_timeout <= 0:
        raise ValueError("--probe-interval and --probe-timeout are more than 0")
    if arguments.task_timeout is not None and arguments.task_timeout <= 0:
        raise ValueError("--task-timeout is more than 0")
    if unknown := {*_parts(arguments.runtimes)} - {*runtimes.COMMANDS}:
        raise ValueError(f"--runtimes {min(unknown)}: there are {', '.join(runtimes.COMMANDS)}")
    if arguments.max_tasks_per_child < 1:
        raise ValueError("--max-tasks-per-child is at least 1")
    try:
        memory_limit = None if arguments.memory_limit is None else parse_size(arguments.memory_limit)
    except ValueError as error:
        raise ValueError(f"--memory-limit {error}") from None
    asked = {
        "heartbeat_interval_seconds": arguments.heartbeat_interval,
        "timeout_seconds": arguments.timeout,
        "termination_grace_period_seconds": arguments.grace,
        "worker_task_restart_strategy": arguments.restart_strategy,
    }
    name = arguments.name or f"{socket.gethostname()}-{os.getpid()}"
    policy = ActionPolicy.parse_options(arguments.allow, arguments.handler, _django_environment(arguments.django), name)
    queues = [queue_tag(queue) for queue in _parts(arguments.queues)] if arguments.django else []
    return Options(
        url=arguments.url,
        token=token,
        name=name,
        cluster=arguments.cluster,
        tags=policy.list_tags([*_parts(arguments.tags), *queues]),
        policy=policy,
        concurrency=arguments.concurrency,
        poll=arguments.poll,
        state=state_folder(arguments.state_dir, arguments.name),
        config={key: value for key, value in asked.items() if value is not None},
        environment=environment.for_jobs(os.environ, {*_parts(arguments.pass_env)} - {environment.TOKEN}),
        task_timeout=arguments.task_timeout,
        memory_limit=memory_limit,
        max_tasks_per_child=arguments.max_tasks_per_child,
        probe=arguments.probe,
        probe_interval=arguments.probe_interval,
        probe_timeout=arguments.probe_timeout,
        secrets=_secret_sources(arguments),
    )


def _token(arguments: argparse.Namespace) -> str:
    if arguments.token and arguments.token_file:
        raise ValueError("--token and --token-file: one of them")
    if not arguments.token_file:
        return str(arguments.token or os.environ.get(environment.TOKEN) or "")
    try:
        token = Path(arguments.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--token-file {arguments.token_file} cannot be read: {reason(error)}") from None
    if not token:
        raise ValueError(f"--token-file {arguments.token_file} is empty")
    return token


def _secret_sources(arguments: argparse.Namespace) -> SecretSources:
    folder = Path(arguments.secrets_dir).absolute() if arguments.secrets_dir else None
    if folder and not folder.is_dir():
        raise ValueError(f"--secrets-dir {arguments.secrets_dir}: there is no such folder")
    return SecretSources(
        folder,
        arguments.secret_command,
        {name: value for name, value in os.environ.items() if name.startswith(PREFIX)},
        {name: value for name, value in os.environ.items() if name != environment.TOKEN},
    )


def _django_environment(settings: str | None) -> dict[str, str] | None:
    """Of a project's own tasks, which read its settings: all of this environment but the token."""
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
