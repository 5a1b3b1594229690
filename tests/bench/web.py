"""Web servers under load: granian with 2 workers of 4 threads, as it is measured everywhere here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.processes import Fleet, eventually, fleet, free_port

SIZES = ("--workers", "2", "--blocking-threads", "4", "--log-level", "warning")
# Heartbeats of the web servers themselves are not to be in the way.
CALM = {"LIVENESS_INTERVAL": "60", "LIVENESS_HEARTBEAT_INTERVAL": "60", "LIVENESS_TIMEOUT": "600"}


@contextmanager
def control_plane(data_dir: Path) -> Iterator[int]:
    """The port of the control plane's own web server."""
    with processes(data_dir) as processes_:
        yield serve(processes_, "controlplane.web:application", "/livez")


@contextmanager
def plain_view(data_dir: Path) -> Iterator[int]:
    """The port of the reference view."""
    with processes(data_dir) as processes_:
        yield serve(processes_, "tests.bench.plain_view:application", "/")


@contextmanager
def processes(data_dir: Path, **env: str) -> Iterator[Fleet]:
    """Processes of an installation whose data directory is `data_dir`; logs go to a folder of their own."""
    said = {**CALM, "CONTROLPLANE_DATA_DIR": str(data_dir), "DATABASE_URL": os.environ["DATABASE_URL"], **env}
    with TemporaryDirectory() as logs, fleet(Path(logs), **said) as started:
        yield started


def serve(processes_: Fleet, application: str, probe: str) -> int:
    port = free_port()
    address = ("--host", "127.0.0.1", "--port", str(port))
    processes_.start("web", "-m", "granian", "--interface", "wsgi", *address, *SIZES, application)
    eventually(lambda: processes_.answers(f"http://127.0.0.1:{port}{probe}"), why="the web server answers")
    return port
