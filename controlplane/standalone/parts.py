"""What a control plane on one machine consists of, as processes."""

import os
import sys
from pathlib import Path

from controlplane.agent import environment
from controlplane.observability.address import reachable_host
from controlplane.standalone.supervisor import Part
from controlplane.standalone.worker_home import Home

# Nothing is imported from the directory that a part is started in: what lies there may be called like our packages.
# granian and Celery look there all the same, so that theirs is the data directory.
PYTHON = [sys.executable, "-P"]
# The order in which they are stopped. All deadlines are within 15 seconds, with time left for the database.
WORKERS, EXECUTOR, WEB = 1, 2, 3
# Short enough to watch a worker being lost and its jobs being recovered.
DEMO_TIMINGS = {
    "LIVENESS_INTERVAL": "1",
    "LIVENESS_HEARTBEAT_INTERVAL": "1",
    "LIVENESS_TIMEOUT": "4",
    "LIVENESS_INITIAL_DELAY": "4",
    "LIVENESS_TERMINATION_GRACE_PERIOD": "5",
    "JOBS_SWEEP_INTERVAL": "5",
}


def shared_environment(data_dir: Path, host: str) -> dict[str, str]:
    """What all parts are told. DATABASE_URL is there already."""
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [*environment.sources(), *map(os.path.abspath, inherited)]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "CONTROLPLANE_DATA_DIR": str(data_dir)}
    if "ALLOWED_HOSTS" not in os.environ:
        variables["ALLOWED_HOSTS"] = ",".join(dict.fromkeys(["localhost", "127.0.0.1", "[::1]", reachable_host(host)]))
    return variables


def web_part(host: str, port: int, data_dir: Path) -> Part:
    serve = ["granian", "--interface", "rsgi", "--host", host, "--port", str(port), "--log-level", "warning"]
    sizes = ["--workers", "1", "--backpressure", "8192", "--workers-kill-timeout", "2"]
    command = [*PYTHON, "-m", *serve, *sizes, "controlplane.web:application"]
    return Part("web", command, WEB, killed_after=13, cwd=data_dir)


def executor_part(data_dir: Path) -> Part:
    work = ["worker", "--pool", "threads", "--concurrency", "4", "--hostname", "executor@%h", "--loglevel", "warning"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    root = ["-W", "ignore:You're running the worker with superuser"]  # in a container one often is
    command = [*PYTHON, *root, "-m", "celery", "--quiet", "-A", "controlplane.celery", *work, "--beat", *quiet]
    return Part("executor", command, EXECUTOR, killed_after=11, cwd=data_dir)


def worker_part(number: int, url: str, token: str, home: Home) -> Part:
    agent = [sys.executable, "-m", "controlplane.agent", "--url", url, "--name", f"worker-{number}", *home.options]
    respawn = [
        *PYTHON,
        "-m",
        "controlplane.standalone.respawn",
        "--after",
        f"{url}/livez",
        *home.user_options,
        "--",
    ]
    # In the environment: everybody may read a command line.
    # After the second signal an agent gives its jobs back; after SIGKILL they are recovered.
    return Part(
        f"worker-{number}",
        [*respawn, *agent],
        WORKERS,
        insisted_after=3,
        killed_after=6,
        env={**home.environment, "CONTROLPLANE_TOKEN": token},
        inherits=False,
    )


def demo_part(url: str, client_token: str, operator_token: str) -> Part:
    secrets = {"CONTROLPLANE_TOKEN": client_token, "CONTROLPLANE_OPERATOR_TOKEN": operator_token}
    command = [*PYTHON, "-m", "controlplane.demo", "--url", url]
    return Part("demo", command, WORKERS, killed_after=3, env=secrets)
