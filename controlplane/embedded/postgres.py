"""The embedded PostgreSQL of a data directory: who uses it, and who stops it.

Every user holds a shared lock, and the last one to leave stops the server. Locks die with their
process, so a server that a `kill -9` left behind is joined, and then stopped, by the next user.
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

from controlplane.embedded import private_files
from controlplane.embedded.postgres_server import DATABASE, PORT, PostgresServer, database_home, socket_directory

WITHOUT_DATABASE = {
    *("check", "collectstatic", "compilemessages", "diffsettings", "help", "makemessages"),
    *("spectacular", "startapp", "startproject", "version"),
}


def database_url(data_dir: Path) -> str:
    """Where the database of `data_dir` answers while its server runs."""
    socket_dir = quote(str(socket_directory(database_home(data_dir))), safe="")
    return f"postgresql://postgres@{socket_dir}:{PORT}/{DATABASE}"


@contextmanager
def running_server(data_dir: Path, *, throwaway: bool = False) -> Iterator[str]:
    """Start the server of `data_dir`, or join it, and give its URL.

    `throwaway` trades the safety of the data for speed, for tests.
    Raises SystemExit with what to do when there can be no server.
    """
    server = PostgresServer(data_dir, throwaway=throwaway)
    with open_lock_file(data_dir, "postgres.lock") as users:
        try:
            with exclusive_lock(data_dir):
                fcntl.flock(users, fcntl.LOCK_SH)
                server.start()
            yield database_url(data_dir)
        finally:
            # Alone, so that nobody joins between "I am the last" and the stop.
            with exclusive_lock(data_dir), suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                server.stop()


@contextmanager
def exclusive_lock(data_dir: Path) -> Iterator[None]:
    """One at a time starts or stops the server of a data directory."""
    with open_lock_file(data_dir, "postgres.starting.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def open_lock_file(data_dir: Path, name: str) -> Iterator[int]:
    try:
        private_files.prepare(data_dir)
        file = private_files.open_lock(data_dir / name)
    except OSError as error:
        raise SystemExit(
            f"The data directory {data_dir} cannot be used: {error.strerror}. "
            "Set CONTROLPLANE_DATA_DIR to a directory that can be written, or set DATABASE_URL."
        ) from None
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def database_for_command(argv: Sequence[str]) -> Iterator[None]:
    """Give a management command its database: `DATABASE_URL`, or the server of its data directory."""
    if chosen := data_dir_option(argv):
        os.environ["CONTROLPLANE_DATA_DIR"] = str(Path(chosen).absolute())
    if os.environ.get("DATABASE_URL") or not needs_database(argv):
        yield
        return
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, exit_on_signal)
    with running_server(Path(os.environ.get("CONTROLPLANE_DATA_DIR", "var")).absolute()) as address:
        os.environ["DATABASE_URL"] = address
        try:
            yield
        finally:
            del os.environ["DATABASE_URL"]


def needs_database(argv: Sequence[str]) -> bool:
    if len(argv) < 2 or argv[1] in WITHOUT_DATABASE:
        return False
    return not {"-h", "--help", "--version"} & set(argv[1:])


def data_dir_option(argv: Sequence[str]) -> str | None:
    """What `standalone --data-dir` says; needed before Django reads its settings, so before argparse."""
    if argv[1:2] != ["standalone"]:
        return None
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--data-dir":
            return following or None
        if word.startswith("--data-dir="):
            return word.partition("=")[2] or None
    return None


def exit_on_signal(signum: int, frame: FrameType | None) -> None:
    """End like sys.exit(), so that the server is stopped; once, so that its stop is not interrupted."""
    signal.signal(signum, signal.SIG_IGN)
    sys.exit(128 + signum)
