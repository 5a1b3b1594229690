"""Real servers of other makers, for the shape of many machines. Skipped with the reason where they are missing."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.support.missing import skip_without
from tests.support.processes import eventually, free_port


def program(name: str, *places: Path) -> str:
    """Where a program is. Skips the test, or fails it where everything is required."""
    path = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, places)]))
    if path is None:
        skip_without(f"{name} is not installed")
    return path


class Redis:
    """A Redis of its own, which may be stopped and started; its queues are lost each time, unless it is durable."""

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
    """A RabbitMQ of its own, a node that nobody else knows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}//"
        # What the path has is a wrapper that runs the node as another user, in folders that are the machine's.
        packaged = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        wrapper = program("rabbitmq-server", Path("/usr/sbin"))
        self.program = str(packaged) if packaged.exists() else wrapper
        names = free_port()
        self.env = {
            **os.environ,
            "HOME": str(folder),  # of the cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
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
            # Its name server first: one that it starts by itself outlives it.
            self.started = [
                subprocess.Popen(command, env=self.env, stdout=output, stderr=output, start_new_session=True)
                for command in ([program("epmd")], [self.program])
            ]
        try:
            eventually(lambda: "Server startup complete" in log.read_text(), within=60, why=log.read_text())
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


class Postgresql:
    """A PostgreSQL as an administrator would install it, reached over TCP, which may be stopped and started."""

    def __init__(self) -> None:
        self.initdb = program("initdb", *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
        # Not in a folder of pytest's: each run closes those for others, and PostgreSQL runs as another user than root.
        self.data, self.port = Path(tempfile.mkdtemp(prefix="controlplane-postgresql-")), free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.options: dict[str, str] = {}

    def control(self, *words: str) -> None:
        self.run(str(Path(self.initdb).parent / "pg_ctl"), "-w", "-D", str(self.data), *words)

    def run(self, *command: str) -> None:
        done = subprocess.run(command, cwd="/", text=True, capture_output=True, timeout=60, check=False, **self.options)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        listen = f"-p {self.port} -h 127.0.0.1 -k {self.data}"
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
        settings = ["--auth=trust", "--encoding=utf8", "--username=postgres", "--no-sync"]
        self.run(self.initdb, *settings, "-D", str(self.data))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
