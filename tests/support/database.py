"""Database of a test run: without DATABASE_URL the tests start their own PostgreSQL.

It is a plugin (`-p` in pyproject.toml), so that it exists before pytest-django reads the settings. The first process
starts it; the workers of pytest-xdist inherit its URL in the environment.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from controlplane.embedded import postgres, postgres_server

PREFIX = "controlplane-tests-"


def remove_leftovers() -> None:
    """Stop and delete the databases of test runs that were killed."""
    for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(BlockingIOError, FileNotFoundError):  # in use, or deleted by another run a moment ago
            if old.stat().st_mtime > time.time() - 60:
                continue  # another run may just be starting
            with postgres.open_lock_file(old, "postgres.lock") as users:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                delete(old)


def delete(data_dir: Path) -> None:
    server = postgres.PostgresServer(data_dir, throwaway=True)
    server.stop()
    shutil.rmtree(server.home, ignore_errors=True)
    postgres_server.user_note(server.home).unlink(missing_ok=True)
    shutil.rmtree(data_dir, ignore_errors=True)


def bring_database() -> None:
    remove_leftovers()
    data_dir = Path(tempfile.mkdtemp(prefix=PREFIX))
    cleanup = ExitStack()
    atexit.register(cleanup.close)
    cleanup.callback(delete, data_dir)
    url = cleanup.enter_context(postgres.running_server(data_dir, throwaway=True))
    os.environ.update(DATABASE_URL=url, CONTROLPLANE_DATA_DIR=str(data_dir))


if not os.environ.get("DATABASE_URL"):
    bring_database()
