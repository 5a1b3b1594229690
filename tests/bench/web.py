"""Web servers under load: granian with 2 workers of 4 threads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.processes import Fleet, eventually, fleet, free_port

SIZES = ("--workers", "2", "--log-level", "warning")
OURS, REFERENCE = ("--interface", "asgi", "--http", "1"), ("--interface", "wsgi", "--blocking-threads", "4")
# The web servers' own heartbeats must not disturb the measurement.
CALM = {"LIVENESS_INTERVAL": "60", "LIVENESS_HEARTBEAT_INTERVAL": "60", "LIVENESS_TIMEOUT": "600"}
SEATS = {"WEB_THREADS": "4"}


@contextmanager
def control_plane(data_dir: Path) -> Iterator[int]:
    """Yield the port of the control plane's web server."""
    with processes(data_dir) as processes_:
        yield serve(processes_, "controlplane.web:application", "/livez", *OURS)


@contextmanager
def plain_view(data_dir: Path) -> Iterator[int]:
    """Yield the port of the reference view."""
    with processes(data_dir) as processes_:
        yield serve(processes_, "tests.bench.plain_view:application", "/", *REFERENCE)


@contextmanager
def processes(data_dir: Path, **env: str) -> Iterator[Fleet]:
    """Yield processes of an installation with the data directory `data_dir` and a separate folder for logs."""
    environment = {
        "CONTROLPLANE_DATA_DIR": str(data_dir),
        "DATABASE_URL": os.environ["DATABASE_URL"],
        **CALM,
        **SEATS,
        **env,
    }
    with TemporaryDirectory() as logs, fleet(Path(logs), **environment) as started:
        yield started


def serve(processes_: Fleet, application: str, probe: str, *interface: str) -> int:
    port = free_port()
    address = ("--host", "127.0.0.1", "--port", str(port))
    processes_.start("web", "-m", "granian", *interface, *address, *SIZES, application)
    eventually(lambda: processes_.answers(f"http://127.0.0.1:{port}{probe}"), why="the web server answers")
    return port
