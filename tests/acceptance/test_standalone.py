"""`manage.py standalone` as a user runs it: one terminal, one port, one data directory."""

import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

import psutil
import psycopg
import pytest
import urllib3

from controlplane.embedded import postgres
from controlplane.standalone import worker_home
from tests.support.data_dirs import new_data_dir, python_for_others
from tests.support.processes import ROOT, eventually, free_port

pytestmark = pytest.mark.acceptance
AGENT = " -m controlplane.agent --"
KEY = "of this installation" * 2
FOREIGN = ("LIVENESS_", "JOBS_", "CONTROLPLANE_", "DATABASE_URL", "PYTEST_")


class Standalone:
    """A running `manage.py standalone` with its output."""

    def __init__(
        self, data_dir: Path, *options: str, port: int | None = None, python: str = sys.executable, **more: str
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        env = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)} | more
        tmp = data_dir.parent / "tmp"
        tmp.mkdir(exist_ok=True)
        env["TMPDIR"] = str(tmp)
        command = [python, "manage.py", "standalone", "--port", str(self.port), "--data-dir", str(data_dir)]
        began_at = time.monotonic()
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.starting_took = 0.0  # seconds until it printed its address
        self.reader = threading.Thread(target=self.read, args=(self.process.stdout, began_at))
        self.reader.start()
        self.known_processes: dict[int, psutil.Process] = {}

    def read(self, output: IO[str], began_at: float) -> None:
        with output:
            for line in iter(output.readline, ""):
                self.lines.append(line)
                if "Open http" in line:
                    self.starting_took = time.monotonic() - began_at

    @property
    def ends_within(self) -> float:
        """Return the time limit for an end in seconds: 15, or the duration of the start if that was longer."""
        return max(15.0, self.starting_took)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str, within: float = 120) -> re.Match[str]:
        match = eventually(
            lambda: re.search(pattern, self.output) or (self.process.poll() is not None and self.output),
            within=within,
            why=f"it says {pattern!r}; it said:\n{self.output}",
        )
        assert isinstance(match, re.Match), match
        return match

    def processes(self) -> list[psutil.Process]:
        """Return all processes that were ever started, including those of the database, which have no parent here."""
        descendants = psutil.Process(self.process.pid).children(recursive=True)
        if server := postgres.PostgresServer(self.data_dir).pid():
            descendants += [psutil.Process(server), *psutil.Process(server).children(recursive=True)]
        self.known_processes |= {process.pid: process for process in descendants}
        return list(self.known_processes.values())

    def end(self, signum: int = signal.SIGINT, within: float | None = None) -> int:
        self.process.send_signal(signum)
        status = self.process.wait(within or self.ends_within)
        self.reader.join(5)
        return status

    def answers(self, path: str) -> bool:
        with suppress(urllib3.exceptions.HTTPError):
            return self.get(path).status == 200
        return False

    def get(self, path: str) -> urllib3.BaseHTTPResponse:
        return urllib3.request("GET", f"http://127.0.0.1:{self.port}{path}", redirect=False, retries=False)


@pytest.fixture(scope="module")
def used() -> Iterator[Path]:
    """Make a data directory that several starts use one after the other."""
    with new_data_dir() as directory:
        directory.mkdir(mode=0o700)
        key = directory / "secret_key"
        key.write_text(KEY)  # some starts also have it in the environment
        key.chmod(0o600)
        yield directory


@pytest.fixture
def data_dir(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Make a data directory for a test of the first run. Other tests share one, because a first run is slow."""
    if request.node.get_closest_marker("first_run"):
        with new_data_dir() as directory:
            yield directory
    else:
        yield request.getfixturevalue("used")


@pytest.fixture
def start(data_dir: Path) -> Iterator[object]:
    started: list[Standalone] = []

    def start(*options: str, **more: object) -> Standalone:
        started.append(Standalone(data_dir, *options, **more))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGTERM, within=60)
    postgres.PostgresServer(data_dir).stop()


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that have not ended. Zombies have ended."""
    still_running = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                still_running.append(process)
        except psutil.NoSuchProcess:
            pass
    return still_running


def all_end(processes: list[psutil.Process]) -> None:
    """Wait until they have ended. The last ones end a moment after their parent."""
    eventually(lambda: not running(processes), within=20, why=lambda: f"no process is left: {running(processes)}")


def registered(one: Standalone, workers: int) -> None:
    eventually(lambda: one.output.count("Worker registered with ID") >= workers, why=one.output)


@pytest.mark.first_run
def test_a_first_run_with_the_demo_leaves_no_process_and_the_next_one_continues(start, data_dir):
    first = start("--demo")
    kept = Path(first.wait_for(r"user admin, the password is in (\S+)")[1])
    password = kept.read_text().strip()
    assert (kept.parent, kept.stat().st_mode & 0o777) == (data_dir, 0o600)
    kept.unlink()
    page = first.wait_for(r"Open (http://\S+/admin/instance/)")[1]
    assert page == f"http://127.0.0.1:{first.port}/admin/instance/"
    registered(first, 1)
    assert first.get("/livez").status == 200
    login = first.get("/admin/login/")
    assert login.status == 200
    stylesheet = re.search(rb'href="(/static/[^"]+\.css[^"]*)"', login.data)
    assert first.get(stylesheet[1].decode()).status == 200
    assert first.get("/readyz").status == 200
    eventually(lambda: first.get("/healthz").status == 200, why="a liveness check has run")
    processes = first.processes()
    assert len(processes) > 6
    token = (data_dir / "tokens" / "worker").read_text()
    assert (data_dir / "tokens" / "worker").stat().st_mode & 0o777 == 0o600
    commands = [command_line(process) for process in running(processes)]
    assert not [command for command in commands if token in command or password in command]
    assert data_dir.stat().st_mode & 0o777 == 0o700
    for folder, _, names in os.walk(data_dir):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            with suppress(FileNotFoundError):  # a message that was read in the meantime
                assert not path.stat().st_mode & 0o077, path
                is_read = path.is_file() and "postgres" not in path.parts
                assert not is_read or password.encode() not in path.read_bytes(), path

    follow_the_demo(first, data_dir)
    processes = first.processes()
    with postgres.running_server(data_dir) as url, psycopg.connect(url, autocommit=True) as database:
        fired = "select count(*) from jobs_triggerslot where outcome = 'FIRED'"
        eventually(lambda: database.execute(fired).fetchone()[0], why=fired)
        assert first.end(signal.SIGINT) == 0, first.output
        assert database.execute("select enabled from jobs_trigger").fetchall() == [(False,)]
    all_end(processes)

    second = start("--workers", "1", port=first.port)
    second.wait_for(r"An administrator exists; .*changepassword admin")
    assert password not in first.output + second.output, "a journal would keep it"
    assert not kept.exists()
    registered(second, 1)
    processes = second.processes()
    assert second.end(signal.SIGTERM) == 0, second.output
    all_end(processes)


def command_line(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def follow_the_demo(one: Standalone, data_dir: Path) -> None:
    """Wait until the demo has killed a worker, its job is completed elsewhere, and the verdict is green."""
    one.wait_for(r"demo +\| ACCIDENT: kill -9 of worker-\d")
    for state in ("ERROR", "NOT_RUNNING", "INACTIVE"):
        one.wait_for(rf"demo +\| worker-\d is {state}")
    one.wait_for(r"Attempt 1 is RESUBMITTED")
    one.wait_for(r"The job is COMPLETED, in attempt 2")
    operator = {"Authorization": f"Bearer {(data_dir / 'tokens' / 'operator').read_text()}"}

    def verdict() -> Any:
        return urllib3.request("GET", f"http://127.0.0.1:{one.port}/api/v1/instance", headers=operator).json()[
            "verdict"
        ]

    eventually(lambda: verdict()["tone"] == "well", why=lambda: f"the verdict is green: {verdict()}")


LOOK = """
id -un; umask; env | grep -c -e SECRET -e DATABASE -e CONTROLPLANE; echo $MINE
cat {data_dir}/secret_key {data_dir}/tokens/* 2>/dev/null | wc -c
"""


def looked_around(one: Standalone, data_dir: Path) -> list[str]:
    """Return what a job sees, one value a line: user, umask, number of our settings, $MINE, bytes of our secrets."""
    return written_by_job(one, data_dir, {"command": LOOK.format(data_dir=data_dir)})


@cache
def client_token(data_dir: Path) -> str:
    """Create a token while the control plane runs."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    env["CONTROLPLANE_DATA_DIR"] = str(data_dir)
    command = [sys.executable, "manage.py", "create_token", "--role", "client", "a stranger"]
    return subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout.strip()


def written_by_job(one: Standalone, data_dir: Path, script: dict[str, Any]) -> list[str]:
    jobs, headers = f"http://127.0.0.1:{one.port}/api/v1/jobs", {"Authorization": f"Bearer {client_token(data_dir)}"}
    id = urllib3.request("POST", jobs, json={"action": {"type": "script", **script}}, headers=headers).json()["id"]
    job_now = eventually(
        lambda: (job := urllib3.request("GET", f"{jobs}/{id}", headers=headers).json())["finished_at"] and job,
        why="the job ends",
    )
    return job_now["output"]["stdout"].splitlines()


SECRETS = {
    "SECRET_KEY": KEY,
    "CONTROLPLANE_WORKER_ENV": "MINE",
    "MINE": "handed on",
    "OTHER": "not",
}
ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give workers a user of their own")
def test_workers_of_root_run_as_another_user_that_cannot_read_the_control_plane(start, data_dir):
    paths = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    options, env = secret_options(data_dir.parent / "secrets")
    one = start("--workers", "1", *options, python=python_for_others(), PYTHONPATH=paths, **SECRETS, **env)
    registered(one, 1)
    assert_secrets_are_found(one, data_dir)
    assert looked_around(one, data_dir) == [worker_home.USER, "0022", "0", "handed on", "0"]
    agents = [process for process in one.processes() if AGENT in command_line(process)]
    assert [process.username() for process in agents] == [worker_home.USER]
    assert not {"SECRET_KEY", "DATABASE_URL", "OTHER"} & set(agents[0].environ())
    assert "Workers run as root" not in one.output
    assert one.end() == 0, one.output


def test_workers_whose_user_cannot_run_python_run_as_root_and_find_secrets(start, data_dir, tmp_path):
    """Secrets are files of a folder, variables, and the output of a command."""
    tmp_path.chmod(0o700)
    python = tmp_path / "python"
    python.symlink_to(Path(sys.executable).resolve())
    paths = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    options, env = secret_options(tmp_path / "secrets")
    one = start("--workers", "2", *options, python=str(python), PYTHONPATH=paths, **SECRETS, **env)
    registered(one, 2)
    user, _, settings, mine, _ = looked_around(one, data_dir)
    assert (user, settings, mine) == (ME, "0", "handed on")
    assert one.output.count("Workers run as root") == (os.geteuid() == 0), one.output
    assert_secrets_are_found(one, data_dir)
    assert one.end() == 0, one.output


def secret_options(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the options and variables that name a folder with a secret, a variable and a command."""
    folder.mkdir(mode=0o755)  # open to every user, because workers of root may run as another one
    (folder / "of-file").write_text("one of a file")
    (folder / "of-file").chmod(0o644)
    options = ["--secrets-dir", str(folder), "--secret-command", 'echo "one of $1"']
    return options, {"CONTROLPLANE_SECRET_OF_VARIABLE": "one of a variable"}


def assert_secrets_are_found(one: Standalone, data_dir: Path) -> None:
    named = {"A": "of-file", "B": "of-variable", "C": "the-command"}
    # Written so that it is not masked.
    look = 'for one in "$A" "$B" "$C"; do echo "$one" | tr a-z A-Z; done; env | grep -c CONTROLPLANE_SECRET || true'
    script = {"command": look, "env": {variable: {"secret": name} for variable, name in named.items()}}
    assert written_by_job(one, data_dir, script) == [
        "ONE OF A FILE", "ONE OF A VARIABLE", "ONE OF THE-COMMAND", "0",
    ]  # fmt: skip


def test_a_port_in_use_is_an_error_with_a_remedy(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one = start(port=port)
        assert one.process.wait(60) == 1
        one.reader.join(5)
    assert f"Port {port} is in use; choose another with --port." in one.output
    assert "Traceback" not in one.output


def test_a_second_one_is_refused_and_parts_that_are_killed_are_started_again(start, data_dir):
    one = start("--workers", "1")
    registered(one, 1)
    second = start("--workers", "0")
    assert second.process.wait(60) == 1
    second.reader.join(5)
    assert f"A control plane is already running on {data_dir}." in second.output
    assert one.get("/livez").status == 200

    for name in ("web", "executor"):
        os.kill(int(one.wait_for(rf"{name} started \(pid=(\d+)\)")[1]), signal.SIGKILL)
        one.wait_for(rf"{name} was killed by SIGKILL; starting it again in 1 s")
    eventually(lambda: one.answers("/livez"), why="the web server answers again")
    eventually(lambda: one.get("/healthz").status == 200, why="checks run again")
    assert one.output.count("Worker registered with ID") == 1, "the worker went on"

    agent = next(process for process in one.processes() if AGENT in command_line(process))
    agent.kill()
    registered(one, 2)
    processes = one.processes()
    assert one.end() == 0, one.output
    all_end(processes)


def test_a_kill_of_the_supervisor_ends_the_parts_and_the_next_start_works(start):
    one = start("--workers", "1")
    registered(one, 1)
    processes = one.processes()
    database = postgres.PostgresServer(one.data_dir).pid()
    one.process.kill()
    one.process.wait(60)
    eventually(
        lambda: all(process.name() == "postgres" or is_sentinel(process) for process in running(processes)),
        within=one.ends_within,
        why="the parts ended, and a sentinel waits to report the worker",
    )
    second = start("--workers", "1", port=one.port)
    registered(second, 1)
    assert postgres.PostgresServer(one.data_dir).pid() == database
    eventually(lambda: not any(map(is_sentinel, running(processes))), why="the worker is reported")
    assert second.end() == 0, second.output
    all_end(processes)


def is_sentinel(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("sentinel" in word for word in process.cmdline())
    return False


def test_a_crash_of_everything_at_once_is_recovered_at_the_next_start(start, data_dir):
    one = start("--workers", "1", LIVENESS_TIMEOUT="600", LIVENESS_TERMINATION_GRACE_PERIOD="600")
    registered(one, 1)
    notes = data_dir.parent / "tmp" / "notes"
    client = {"Authorization": f"Bearer {client_token(data_dir)}"}
    address = f"http://127.0.0.1:{one.port}/api/v1/jobs"
    script = f'[ "$JOB_ATTEMPT" = 2 ] || {{ touch "{notes}"; sleep 600; }}'
    (data_dir.parent / "tmp").chmod(0o777)
    action = {"type": "script", "command": script}
    job = urllib3.request("POST", address, json={"action": action}, headers=client).json()
    eventually(notes.exists, why=f"the job runs: {job}")
    for process in one.processes():
        with suppress(psutil.Error):
            process.kill()
    one.process.kill()
    one.process.wait(60)
    second = start("--workers", "1", port=one.port, LIVENESS_TIMEOUT="600", LIVENESS_TERMINATION_GRACE_PERIOD="600")
    registered(second, 1)
    done = eventually(
        lambda: (now := urllib3.request("GET", f"{address}/{job['id']}", headers=client).json())["finished_at"] and now,
        why="the job runs again long before the timeout",
    )
    assert (done["state"], len(done["attempts"])) == ("COMPLETED", 2)
    assert second.end() == 0, second.output
