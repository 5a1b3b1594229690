"""Real processes for acceptance tests: started, watched, killed, and stopped at the end of the test."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg
import urllib3

from controlplane.standalone.parts import SERVING

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_RICH = str(ROOT / "tests/support/without_rich")
"""First entry of PYTHONPATH for agents and Celery workers. They start faster without the package `rich`."""
SHORT = {
    "LIVENESS_INTERVAL": "0.5",
    "LIVENESS_HEARTBEAT_INTERVAL": "0.5",
    "LIVENESS_TIMEOUT": "6",  # more than one step may take on a slow machine, so that no living server is lost
    "LIVENESS_INITIAL_DELAY": "1",
    "LIVENESS_TERMINATION_GRACE_PERIOD": "1",
    "JOBS_SWEEP_INTERVAL": "2",
}
# One process for all tokens, because each start of Django is expensive.
MIGRATE = """
import django, json, os
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()
from django.core.management import call_command
from liveness.models import Role
from liveness.services import tokens
call_command("migrate", verbosity=0)
print(json.dumps({role: tokens.create_token(f"acceptance {role}", role) for role in Role.values}))
"""
NUMBERS = count(1)
BLOCK = 12_000 + 1_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 20)
"""First of the 1000 ports of this test process. All are below 32768, where Linux gives connections their ports."""
PLACES = count(os.getpid())  # another test run on this machine begins at another place of the block
BUSY = (b'"overloaded"', b'"too_many_calls"')
"""Codes of calls that changed nothing, because the control plane was busy for longer than a call waits."""
T = TypeVar("T")


def free_port() -> int:
    """Return a port that no other test process returns. A port of the system could be taken before its server binds."""
    for place in PLACES:
        port = BLOCK + place % 1_000
        with suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError


def eventually(what: Callable[[], T], *, within: float = 120, why: str | Callable[[], object] = "") -> T:
    """Call `what` until it returns a true value, and return this value. Fail after `within` seconds.

    `why` is a part of the error message. A function is called when the time is over. Calls are rarer after the first
    second, because many tests wait at the same time, and each call may be a request.
    """
    began = time.monotonic()
    deadline = began + within
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            reason = why() if callable(why) else why or what.__doc__ or what
            raise AssertionError(f"not within {within} s: {reason}: {answer!r}")
        time.sleep(0.05 if time.monotonic() < began + 1 else 0.2)


class Migrated(NamedTuple):
    """Database that is migrated once and copied for each fleet."""

    name: str
    tokens: dict[str, str]
    """API token for each role."""


@cache
def migrated() -> Migrated:
    name = f"migrated_{os.getpid()}"
    server(f"create database {name}")
    atexit.register(drop, beside(name))
    environment = {**os.environ, "DATABASE_URL": beside(name)}
    done = subprocess.run(
        [sys.executable, "-c", MIGRATE], cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE
    )
    return Migrated(name, json.loads(done.stdout))


def database() -> str:
    """Return the URL of a new migrated, empty database."""
    name = f"fleet_{os.getpid()}_{next(NUMBERS)}"
    server(f"create database {name} template {migrated().name}")
    return beside(name)


def drop(url: str) -> None:
    server(f"drop database {url.rpartition('/')[2]} with (force)")


def server(statement: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(statement)


def beside(name: str) -> str:
    place, _, _ = os.environ["DATABASE_URL"].rpartition("/")
    return f"{place}/{name}"


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stop all threads of the process. Wait until they have stopped, because a thread stops only when it runs next."""

    def stands() -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread has ended in the meantime
            threads = Path(f"/proc/{process.pid}/task").glob("*/stat")
            return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)
        return False

    process.send_signal(signal.SIGSTOP)
    eventually(stands, why="every thread stands")


def thaw(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)


class Fleet:
    """Processes of one control plane and its workers, and a client of its API."""

    def __init__(self, folder: Path, env: dict[str, str], tokens: dict[str, str]) -> None:
        self.folder = folder
        self.python = sys.executable
        (folder / "tmp").mkdir(exist_ok=True)
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("LIVENESS_", "JOBS_"))},
            **SHORT,
            "CONTROLPLANE_DATA_DIR": str(folder),
            "CONTROLPLANE_STATE_DIR": str(folder / "state"),
            "TMPDIR": str(folder / "tmp"),  # files that killed processes leave are deleted with the folder
            "DATABASE_POOL_SIZE": "4",
            "CELERY_SKIP_CHECKS": "1",  # Django's checks take a third of an executor's start
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **env,
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.tokens = tokens
        self.http = urllib3.PoolManager(retries=False, timeout=60)

    def run(self, *command: str) -> str:
        """Run a command to its end and return its output."""
        done = subprocess.run(
            [self.python, *command], env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def migrate(self) -> None:
        """Create tables in a database of the test's own, and a token for each role."""
        self.tokens |= json.loads(self.run("-c", MIGRATE))

    def start(self, name: str, *command: str, prefix: Sequence[str] = (), **env: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*prefix, self.python, *command],
                env={**self.env, **env},
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.processes[name]

    def web(
        self,
        name: str = "web",
        *options: str,
        port: int | None = None,
        is_awaited: bool = True,
        application: str = "controlplane.web:application",
    ) -> str:
        """Start a web server and return its URL. Wait until it answers, unless `is_awaited` is False."""
        port = port or free_port()
        self.start(
            name, "-m", "granian", *SERVING, "--host", "127.0.0.1", "--port", str(port), *options, application,
        )  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        if is_awaited:
            eventually(lambda: self.answers(f"{url}/livez"), why=f"{name} answers")
        return url

    def executor(self, name: str, *options: str) -> None:
        self.start(
            name, "-W", "ignore", "-m", "celery", "-A", "controlplane.celery", "worker", "--pool", "threads",
            "--concurrency", "2", "--hostname", f"{name}@%h", "--loglevel", "warning", *options,
        )  # fmt: skip

    def beat(self) -> None:
        self.start("beat", "-W", "ignore", "-m", "celery", "-A", "controlplane.celery", "beat")

    def agent(
        self,
        name: str,
        url: str,
        *options: str,
        is_fast: bool = False,
        role: str = "worker",
        prefix: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start an agent. With `is_fast` it has fast recovery: its sentinel reports a death before the timeout.

        `role` is the name of its token. `prefix` is a command that starts the agent.
        """
        options = options if is_fast else ("--no-fast-recovery", *options)
        return self.start(
            name, "-m", "controlplane.agent", "--url", url, "--name", name, "--poll", "0.2", "--runtimes", "", *options,
            prefix=prefix, CONTROLPLANE_TOKEN=self.token(role),
            PYTHONPATH=os.pathsep.join([WITHOUT_RICH, self.env["PYTHONPATH"]]),
        )  # fmt: skip

    def connected(self) -> psycopg.Connection[Any]:
        """Return a new connection to the database. The caller closes it."""
        return psycopg.connect(self.env["DATABASE_URL"], autocommit=True)

    def token(self, role: str) -> str:
        """Return the API token of this role. It is always the same."""
        if role not in self.tokens:
            self.tokens[role] = self.run("manage.py", "create_token", "--role", role, f"acceptance {role}")
        return self.tokens[role]

    def answers(self, url: str) -> bool:
        try:
            return self.http.request("GET", url, timeout=10).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def call(self, method: str, url: str, token: str, body: Any = None, *, is_patient: bool = True) -> Any:
        """Call the API. Repeat a call that was refused because the control plane is busy, if `is_patient`."""

        def answered() -> Any:
            answer = self.http.request(method, url, json=body, headers={"Authorization": f"Bearer {token}"})
            is_busy = answer.status in (429, 503) and any(code in answer.data for code in BUSY)
            return None if is_busy and is_patient else answer

        answer = eventually(answered, why="the control plane is not busy")
        assert answer.status < 300, answer.data
        return answer.json()

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in sorted(self.folder.glob("*.log"))
        )

    def kill(self, name: str) -> None:
        """Kill a process and its children. The children of a web server would otherwise survive."""
        with suppress(ProcessLookupError):
            os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait(10)

    def end(self, names: Iterable[str]) -> None:
        """Send SIGTERM to these processes, then SIGKILL to processes that still run or are frozen."""
        for name in names:
            with suppress(ProcessLookupError):
                os.killpg(self.processes[name].pid, signal.SIGTERM)
        for name in names:
            with suppress(subprocess.TimeoutExpired):
                self.processes[name].wait(10)
            self.kill(name)

    def stop(self) -> None:
        for name in self.processes:
            self.kill(name)


@contextmanager
def fleet(folder: Path, **env: str) -> Iterator[Fleet]:
    """Yield a fleet that is stopped at the end. Its logs are printed if the test fails.

    Without DATABASE_URL it gets its own migrated database in the tests' PostgreSQL.
    """
    is_own = "DATABASE_URL" not in env
    if is_own:
        env |= {"DATABASE_URL": database()}
    running = Fleet(folder, env, dict(migrated().tokens) if is_own else {})
    try:
        yield running
    except BaseException:
        sys.stderr.write(running.logs())
        raise
    finally:
        running.stop()
        if is_own:
            drop(running.env["DATABASE_URL"])
