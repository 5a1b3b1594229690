"""Real servers of other vendors. If a server is missing, its tests are skipped with the reason."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg

from tests.support.missing import skip_without
from tests.support.processes import eventually, free_port


def program(name: str, *places: Path) -> str:
    """Return the path of a program. Skip the test if it is missing, or fail it if REQUIRE_ALL is set."""
    path = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, places)]))
    if path is None:
        skip_without(f"{name} is not installed")
    return path


class Redis:
    """Redis server that can be stopped and started. It loses its queues each time, unless it is durable."""

    def __init__(self, folder: Path, *, is_durable: bool = False) -> None:
        self.folder, self.port = folder, free_port()
        self.options = ["--appendonly", "yes", "--appendfsync", "always"] if is_durable else []
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.program = program("redis-server")

    def start(self) -> None:
        log = self.folder / "redis.log"
        command = [self.program, "--port", str(self.port), "--save", "", "--dir", str(self.folder), *self.options]
        with log.open("wb") as output:
            self.server = subprocess.Popen([*command, "--bind", "127.0.0.1"], stdout=output, stderr=output)
        eventually(lambda: "Ready to accept connections" in log.read_text(), why="Redis is ready")

    def stop(self) -> None:
        self.server.kill()
        self.server.wait(10)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class RabbitMQ:
    """RabbitMQ node of its own. `settings` are those of its application `rabbit`, in Erlang."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}//"
        # The program in PATH is a wrapper that runs the node as another user, in system folders.
        packaged = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        wrapper = program("rabbitmq-server", Path("/usr/sbin"))
        self.program = str(packaged) if packaged.exists() else wrapper
        (folder / "advanced.config").write_text(f"[{{rabbit, [{settings}]}}].")
        names = free_port()
        self.env = {
            **os.environ,
            "HOME": str(folder),  # for the cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_MNESIA_BASE": str(folder / "rabbitmq"),
            "RABBITMQ_NODENAME": "tests@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
        }

    def __enter__(self) -> Self:
        log = self.folder / "rabbitmq.log"
        with log.open("wb") as output:
            # Start the name server first, because a name server that the node starts would survive the node.
            self.started = [
                subprocess.Popen(command, env=self.env, stdout=output, stderr=output, start_new_session=True)
                for command in ([program("epmd")], [self.program])
            ]
        try:
            eventually(lambda: "Server startup complete" in log.read_text(), within=240, why=log.read_text)
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


class Postgresql:
    """PostgreSQL as an administrator would install it, over TCP. It can be stopped and started."""

    def __init__(self, place: Path | None = None) -> None:
        self.initdb = program("initdb", *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
        # The folder is not in pytest's folder, which is closed to other users. PostgreSQL does not run as root.
        self.data, self.port = Path(tempfile.mkdtemp(prefix="controlplane-postgresql-", dir=place)), free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.options: dict[str, str] = {}

    def control(self, *words: str) -> None:
        self.run(str(Path(self.initdb).parent / "pg_ctl"), "-w", "-D", str(self.data), *words)

    def run(self, *command: str) -> None:
        done = subprocess.run(command, cwd="/", text=True, capture_output=True, timeout=60, check=False, **self.options)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        # -F: without fsync a commit does not wait for the disk. The data must outlive a killed server, but no machine.
        listen = f"-F -p {self.port} -h 127.0.0.1 -k {self.data}"
        self.control("-l", str(self.data / "log"), "-o", listen, "start")

    def stop(self) -> None:
        self.control("-m", "immediate", "stop")

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            users = {user.pw_name for user in pwd.getpwall()}
            owner = next(name for name in ("postgres", "pgserver", "nobody") if name in users)
            shutil.chown(self.data, owner)
            self.options = {"user": owner}
        self.data.chmod(0o700)
        self.create()
        self.start()
        return self

    def create(self) -> None:
        settings = ["--auth=trust", "--encoding=utf8", "--username=postgres", "--no-sync"]
        self.run(self.initdb, *settings, "-D", str(self.data))

    def __exit__(self, *_: object) -> None:
        if (self.data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.data, ignore_errors=True)


class Standby(Postgresql):
    """Streaming standby of another PostgreSQL."""

    def __init__(self, primary: Postgresql) -> None:
        super().__init__()
        self.primary = primary

    def create(self) -> None:
        source = ["-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "postgres"]
        self.run(
            str(Path(self.initdb).resolve().parent / "pg_basebackup"),
            *source,
            "-D",
            str(self.data),
            "-c",
            "fast",
            "-R",
            "-N",
        )

    def promote(self) -> None:
        self.control("promote")


class PgBouncer:
    """PgBouncer in transaction mode in front of a PostgreSQL."""

    def __init__(self, folder: Path, postgresql: Postgresql) -> None:
        self.program, self.port, self.folder = program("pgbouncer", Path("/usr/sbin")), free_port(), postgresql.data
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.log, self.options = folder / "pgbouncer.log", postgresql.options
        self.settings = postgresql.data / "pgbouncer.ini"
        self.settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={postgresql.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            "auth_type = any\nadmin_users = postgres\npool_mode = transaction\nmax_client_conn = 500\n"
        )
        self.settings.chmod(0o644)

    def order(self, words: str) -> None:
        """Run a command on PgBouncer's console."""
        url = f"postgresql://postgres@127.0.0.1:{self.port}/pgbouncer"
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as console:
            console.execute(words)

    def __enter__(self) -> Self:
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [self.program, str(self.settings)], cwd="/", stdout=output, stderr=output, **self.options
            )
        eventually(lambda: "process up" in self.log.read_text(), why="PgBouncer is up")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
