"""The command line of `controlplane-agent`."""

from __future__ import annotations

import argparse
import os

from controlplane.agent.durations import duration
from controlplane.agent.fitness import runtimes
from controlplane.agent.limits import AHEAD_LIMIT
from controlplane.agent.options import MAX_TASKS_PER_CHILD
from controlplane.agent.secrets.sources import PREFIX
from controlplane.agent.version import VERSION
from controlplane.agent.whole_numbers import integer

EXIT_STATUSES = (
    "exit status: 0 it was asked to end, all jobs finished, and the control plane accepted all reports; "
    "1 any other end (jobs were killed, no response, declared dead or disconnected); "
    "2 it could not start (an option, the token, a refused registration). With --check: 0 or 1."
)
STRATEGIES = ("AFTER_TERMINATION_GRACE_PERIOD", "IMMEDIATELY", "NEVER")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `controlplane-agent`."""
    env = os.environ.get
    parser = argparse.ArgumentParser(
        prog="controlplane-agent",
        allow_abbrev=False,
        description="Run a worker of a control plane.",
        epilog=EXIT_STATUSES,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {VERSION}")
    add("--url", default=env("CONTROLPLANE_URL"), help="address of the control plane (default: CONTROLPLANE_URL)")
    add(
        "--token-file",
        metavar="FILE",
        help="file with a token of the role worker, read again at each registration (default: the variable "
        "CONTROLPLANE_TOKEN)",
    )
    add("--token", help="the token itself; all users who can list the processes of this machine can read it")
    add("--name", help="name of this worker (default: host name and process id)")
    add("--cluster", default="default", help="cluster of this worker (default: %(default)s)")
    add("--tags", default="", metavar="A,B", help="tags, in addition to those of the allowed kinds of actions")
    add(
        "--allow",
        metavar="KINDS",
        help="kinds of actions to run: script, callable, callable:GLOB (a pattern of modules), handler (default: these "
        "three); docker (also with podman), pod",
    )
    add(
        "--handler",
        action="append",
        default=[],
        metavar="NAME=MODULE:FUNCTION",
        help="function to call for jobs with that handler",
    )
    add(
        "--django", metavar="SETTINGS", help="run the tasks of a Django project with this settings module and this "
        "environment; the project must have the control plane among its apps and its backend in TASKS",
    )  # fmt: skip
    add("--queues", default="default", metavar="A,B", help="queues of --django (default: %(default)s)")
    add(
        "--pass-env", default="", metavar="A,B",
        help="environment variables to pass to jobs although they configure a control plane (DATABASE_URL, "
        "SECRET_KEY, CONTROLPLANE_*, ...); jobs get all other variables in any case",
    )  # fmt: skip
    add(
        "--secrets-dir", metavar="FOLDER",
        help=f"folder with one file for each secret that jobs name (or use variables: {PREFIX}NAME)",
    )  # fmt: skip
    add(
        "--secret-command", metavar="COMMAND",
        help="shell command that prints the secret named by its $1; it runs if no file and no variable has that secret",
    )  # fmt: skip
    add(
        "--runtimes", default=",".join(runtimes.COMMANDS), metavar="A,B",
        help="runtimes to look for on this machine; each becomes a tag like runtime:node (default: %(default)s)",
    )  # fmt: skip
    add(
        "--concurrency",
        type=integer,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of jobs to run at once (default: number of CPUs)",
    )
    add(
        "--prefetch", type=integer, default=AHEAD_LIMIT, metavar="N",
        help="most jobs to claim ahead while tasks take milliseconds: as many as the slots finish in 200 ms (default: "
        f"{AHEAD_LIMIT}; 0: none)",
    )  # fmt: skip
    add(
        "--async", type=integer, default=1, metavar="N", dest="at_once",
        help="coroutines to run at once in each of --concurrency pool processes; the worker has --concurrency × N "
        "slots (default: 1; Linux)",
    )  # fmt: skip
    add(
        "--poll",
        type=duration,
        default=1.0,
        metavar="DURATION",
        help="time between claims that return no job, if hints are not available",
    )
    add(
        "--probe",
        metavar="COMMAND",
        help="shell command, or package.module:function; while it fails, this worker is cordoned; the reason is the "
        "last line of its output",
    )
    add("--task-timeout", type=duration, metavar="DURATION", help="timeout of jobs that have no timeout of their own")
    add(
        "--memory-limit", metavar="SIZE",
        help="memory limit of each task and all its processes, like 512M or 2G: a task that uses more is killed and "
        "FAILED with OUT_OF_MEMORY; what earlier tasks of its pool process left does not count (Linux)",
    )  # fmt: skip
    add(
        "--isolation", choices=("pool", "process"),
        help="where callables, handlers and Django tasks run: pool (one after the other in processes that stay, Linux) "
        "or process (each in a process of its own); default: pool for functions that --handler, --django or "
        "--allow callable:GLOB names, process for --allow callable; jobs with secrets always have their own process",
    )  # fmt: skip
    add(
        "--max-tasks-per-child", type=integer, default=MAX_TASKS_PER_CHILD, metavar="N",
        help="number of callables and handlers to run in one pool process, or to fork from one process that has "
        f"imported their module (default: {MAX_TASKS_PER_CHILD}; with 1 each task imports it again; Linux)",
    )  # fmt: skip
    add(
        "--max-memory-per-child", metavar="SIZE",
        help="memory like 512M that a pool process may keep after a task: with more it is replaced (default: half of "
        "--memory-limit; Linux)",
    )  # fmt: skip
    add(
        "--probe-interval",
        type=duration,
        default=30.0,
        metavar="DURATION",
        help="time between two probes (default: 30 s)",
    )
    add(
        "--probe-timeout",
        type=duration,
        default=10.0,
        metavar="DURATION",
        help="time that a probe may take (default: 10 s)",
    )
    add("--heartbeat-interval", type=duration, metavar="DURATION", help="time between two heartbeats")
    add(
        "--timeout",
        type=duration,
        metavar="DURATION",
        help="time without a heartbeat after which this worker is disconnected",
    )
    add(
        "--grace",
        type=duration,
        metavar="DURATION",
        help="time that running jobs have to finish when this worker must end",
    )
    add("--restart-strategy", choices=STRATEGIES, help="when the jobs of this worker run elsewhere after it is lost")
    add(
        "--state-dir", default=env("CONTROLPLANE_STATE_DIR"), metavar="FOLDER",
        help="folder for reports that were not answered before this worker ended; the next start with the same name "
        "sends them (or CONTROLPLANE_STATE_DIR; default: ~/.local/state/controlplane-agent)",
    )  # fmt: skip
    add(
        "--no-fast-recovery", action="store_true",
        help="do not report deaths that this machine can prove: jobs of a killed agent wait for the timeout",
    )  # fmt: skip
    add(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"),
        help="lowest level of messages in the log (default: %(default)s)",
    )  # fmt: skip
    add(
        "--check",
        action="store_true",
        help="exit with 0 if the agent with this name is alive and its heartbeats are answered, otherwise with 1",
    )
    return parser
