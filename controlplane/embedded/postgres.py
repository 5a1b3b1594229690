"""Start, share and stop the embedded PostgreSQL of a data directory.

Every process that uses the server holds a shared lock, and the last one stops the server. Locks end with their process.
So if a `kill -9` leaves a server behind, the next process uses it and then stops it.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from controlplane.embedded import copies, private_files
from controlplane.embedded import data_dir as data_dirs
from controlplane.embedded.postgres_server import DATABASE, PORT, PostgresServer, database_home, socket_directory

WITHOUT_DATABASE = {
    *("check", "collectstatic", "compilemessages", "diffsettings", "findstatic", "help", "makemessages"),
    *("makemigrations", "spectacular", "startapp", "startproject", "version"),
}


def database_url(data_dir: Path) -> str:
    """Return the URL at which the database of `data_dir` answers while its server runs."""
    socket_dir = quote(str(socket_directory(database_home(data_dir))), safe="")
    return f"postgresql://postgres@{socket_dir}:{PORT}/{DATABASE}"


@contextmanager
def running_server(data_dir: Path, *, throwaway: bool = False) -> Iterator[str]:
    """Start the server of `data_dir`, or join it, and yield its URL.

    `throwaway` is for tests: the server is faster, but may lose data in a crash. Raise SystemExit with advice if no
    server can run, or if it belongs to another directory.
    """
    server = PostgresServer(data_dir, throwaway=throwaway)
    copies.refuse(data_dir)
    with open_lock_file(data_dir, "postgres.lock") as users:
        try:
            with exclusive_lock(data_dir):
                fcntl.flock(users, fcntl.LOCK_SH)
                server.start()
                copies.remember(data_dir)
            yield database_url(data_dir)
        finally:
            # This happens under the lock, so that no process begins to use the server between the check and the stop.
            with exclusive_lock(data_dir), suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                server.stop()


@contextmanager
def exclusive_lock(data_dir: Path) -> Iterator[None]:
    """Let only one process at a time start or stop the server of a data directory."""
    with open_lock_file(data_dir, "postgres.starting.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def open_lock_file(data_dir: Path, name: str) -> Iterator[int]:
    try:
        private_files.prepare(data_dir)
        file = private_files.open_lock(data_dir / name)
    except OSError as error:
        raise SystemExit(data_dirs.refusal(data_dir, error)) from None
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def database_for_command(argv: Sequence[str]) -> Iterator[None]:
    """Provide a management command's database: `DATABASE_URL`, or the server of its data directory.

    Raise SystemExit with advice if there is neither, unless the command may create an installation.
    """
    if not needs_database(argv):
        yield
        return
    is_given = bool(os.environ.get("DATABASE_URL"))
    if not (is_given and os.environ.get("SECRET_KEY") and argv[1] != "standalone"):
        data_dir = data_dirs.prepare_for(argv[1])
    if is_given:
        yield
        return
    if argv[1] not in data_dirs.MAKERS and not database_home(data_dir).exists():
        raise SystemExit(
            f"There is no database in {data_dir}. Run `standalone` or `migrate` first, "
            f"choose another directory with {data_dirs.OPTION} or {data_dirs.VARIABLE}, or set DATABASE_URL."
        )
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, exit_on_signal)
    with running_server(data_dir) as address:
        os.environ["DATABASE_URL"] = address
        try:
            yield
        finally:
            del os.environ["DATABASE_URL"]


def needs_database(argv: Sequence[str]) -> bool:
    if len(argv) < 2 or argv[1] in WITHOUT_DATABASE:
        return False
    if argv[1] == "sql":
        return "--explain" in argv
    return not {"-h", "--help", "--version"} & set(argv[1:])


def exit_on_signal(signum: int, frame: FrameType | None) -> None:
    """Exit like sys.exit(), so that the server is stopped.

    Ignore later signals, so that they do not interrupt the stop.
    """
    signal.signal(signum, signal.SIG_IGN)
    sys.exit(128 + signum)
