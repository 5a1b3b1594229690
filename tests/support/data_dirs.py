"""Data directories for tests, and what root stores beside them."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.embedded import postgres, postgres_binaries, postgres_server
from controlplane.standalone import worker_home


@contextmanager
def new_data_dir() -> Iterator[Path]:
    """Yield the path of a new data directory in a folder open to all users, in contrast to pytest's."""
    place = Path(tempfile.mkdtemp(prefix="controlplane-test-"))
    place.chmod(0o755)
    try:
        yield place / "var"
    finally:
        forget(place / "var")
        shutil.rmtree(place)


def forget(data_dir: Path) -> None:
    """Stop a server that a failed test has left, and delete its database and worker folder outside the directory."""
    server = postgres.PostgresServer(data_dir, throwaway=True)
    server.stop()
    shutil.rmtree(server.home, ignore_errors=True)
    postgres_server.user_note(server.home).unlink(missing_ok=True)
    shutil.rmtree(worker_home.state_of(data_dir), ignore_errors=True)


def python_for_others() -> str:
    """Return a Python of our version that any user may run."""
    version = f"python3.{sys.version_info.minor}"
    for python in (Path(sys.executable), Path("/usr/bin", version), Path("/usr/local/bin", version)):
        if python.exists() and postgres_binaries.is_open_to_others(python):
            return str(python)
    pytest.skip("no Python of this version is open to other users")
