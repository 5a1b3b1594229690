"""Processes of a control plane on one machine."""

import os
import signal
import sys
from pathlib import Path

from controlplane.agent.processes import environment
from controlplane.observability.address import reachable_host
from controlplane.standalone.supervisor import Part
from controlplane.standalone.worker_home import Home

# No part imports from its current directory, because files there may have the names of our packages. granian and Celery
# add the current directory to the path anyway. So they start in the data directory.
PYTHON = [sys.executable, "-P"]
# The files in deploy/ repeat these options. granian serves only HTTP/1.1, because it does not limit HTTP/2 headers.
SERVING = [
    *("--interface", "asgi", "--http", "1", "--no-ws", "--workers", "1", "--backpressure", "8192"),
    *("--http1-header-read-timeout", "20000", "--http1-buffer-size", "65536", "--log-level", "warning"),
]
# Parts are stopped in this order. All deadlines are within 15 seconds, and leave time to stop the database.
WORKERS, EXECUTOR, WEB = 1, 2, 3
# These timings are short, so that a person can watch how a worker is lost and its jobs are recovered.
DEMO_TIMINGS = {
    "LIVENESS_INTERVAL": "1",
    "LIVENESS_HEARTBEAT_INTERVAL": "1",
    "LIVENESS_TIMEOUT": "4",
    "LIVENESS_INITIAL_DELAY": "4",
    "LIVENESS_TERMINATION_GRACE_PERIOD": "5",
    "JOBS_SWEEP_INTERVAL": "5",
}


def shared_environment(data_dir: Path, host: str) -> dict[str, str]:
    """Return variables for all parts. DATABASE_URL is already in the environment."""
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [*environment.sources(), *map(os.path.abspath, inherited)]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "CONTROLPLANE_DATA_DIR": str(data_dir)}
    if "ALLOWED_HOSTS" not in os.environ:
        variables["ALLOWED_HOSTS"] = ",".join(dict.fromkeys(["localhost", "127.0.0.1", "[::1]", reachable_host(host)]))
    return variables


def web_part(host: str, port: int, data_dir: Path) -> Part:
    serve = ["granian", *SERVING, "--host", host, "--port", str(port), "--workers-kill-timeout", "2"]
    command = [*PYTHON, "-m", *serve, "controlplane.web:application"]
    return Part("web", command, WEB, killed_after=13, cwd=data_dir)


def executor_part(data_dir: Path) -> Part:
    work = ["worker", "--pool", "threads", "--concurrency", "4", "--hostname", "executor@%h", "--loglevel", "warning"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    root = ["-W", "ignore:You're running the worker with superuser"]  # usual in a container
    command = [*PYTHON, *root, "-m", "celery", "--quiet", "-A", "controlplane.celery", *work, "--beat", *quiet]
    return Part("executor", command, EXECUTOR, killed_after=11, cwd=data_dir)


def worker_part(number: int, url: str, token: str, home: Home) -> Part:
    agent = [sys.executable, "-m", "controlplane.agent", "--url", url, "--name", f"worker-{number}", *home.options]
    # The token is in the environment, because every user can read a command line. After the second signal an agent
    # gives its jobs back. After SIGKILL they are recovered.
    return Part(
        f"worker-{number}",
        agent,
        WORKERS,
        insisted_after=3,
        killed_after=6,
        env={**home.environment, "CONTROLPLANE_TOKEN": token},
        inherits=False,
        is_client=True,
        dies_by=signal.SIGKILL,  # without the supervisor nothing waits for an orderly end; the jobs are recovered
        user=home.user,
        umask=home.umask,
    )


def demo_part(url: str, client_token: str, operator_token: str) -> Part:
    secrets = {"CONTROLPLANE_TOKEN": client_token, "CONTROLPLANE_OPERATOR_TOKEN": operator_token}
    command = [*PYTHON, "-m", "controlplane.demo", "--url", url]
    return Part("demo", command, WORKERS, killed_after=3, env=secrets)
