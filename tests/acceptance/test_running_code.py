"""Code on a real agent: cancellation, and reports while it runs and at its end."""

import os
from contextlib import suppress

import psutil
import psycopg
import pytest

from tests.support.processes import eventually, fleet, freeze, thaw

pytestmark = pytest.mark.acceptance

# A child that ignores SIGTERM, and a parent that waits for it.
FAMILY = """
sh -c 'trap "" TERM; echo $$ > {0}.child; while true; do sleep 0.05; done' &
echo $$ > {0}.parent; wait
"""
CALLABLE = """
from controlplane.agent import progress
def large(size):
    progress(0.75, "nearly")
    return "x" * size
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code")
    (folder / "callables.py").write_text(CALLABLE)
    # CANCEL_TIMEOUT passes long before a frozen worker is lost.
    timings = {"LIVENESS_TIMEOUT": "60", "JOBS_CANCEL_TIMEOUT": "10", "JOBS_SWEEP_INTERVAL": "1"}
    with fleet(folder, **timings) as running:
        running.url, running.client = running.web(), running.token("client")
        running.executor("executor", "--beat")
        running.env["PYTHONPATH"] += os.pathsep + str(folder)
        running.agent("worker", running.url, "--concurrency", "1")
        yield running


@pytest.fixture
def job(running):
    """Submit an action. The result has its id and calls for it: `seen()`, `call("POST", "/cancel")`."""

    class Job:
        def __init__(self, action, **more):
            if isinstance(action, str):
                action = {"type": "script", "command": action}
            self.id = running.call("POST", f"{running.url}/api/v1/jobs", running.client, {"action": action, **more})[
                "id"
            ]

        def call(self, method, path=""):
            return running.call(method, f"{running.url}/api/v1/jobs/{self.id}{path}", running.client)

        def read_job(self):
            return self.call("GET")

        def ended(self):
            return eventually(lambda: (job := self.read_job())["finished_at"] and job, why="the job ends")

        def ended_by(self):
            """Return the actor that ended its only attempt."""
            with psycopg.connect(running.env["DATABASE_URL"]) as connection:
                return connection.execute("select ended_by from jobs_attempt where job_id = %s", [self.id]).fetchone()[
                    0
                ]

        def lines(self):
            lines, cursor = [], "0"
            while cursor:
                page = self.call("GET", f"/logs?cursor={cursor}")
                lines += [(item["stream"], item["line"]) for item in page["items"]]
                cursor = page["next"]
            return lines

    return Job


def family(folder, name):
    """Return the process ids of FAMILY when both run. The parent leads the group."""
    files = [folder / f"{name}.{who}" for who in ("parent", "child")]
    return eventually(lambda: all(file.exists() and file.read_text().strip() for file in files)
                      and [int(file.read_text()) for file in files], why="both run")  # fmt: skip


def is_gone(group):
    """Return True if no process of the group runs. Zombies that wait for init do not count."""
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                return False
    return True


def test_a_cancelled_job_ends_with_its_process_group_and_its_worker_reports_it(running, job):
    one = job(FAMILY.format(running.folder / "cancelled"))
    parent, child = family(running.folder, "cancelled")
    assert os.getpgid(child) == parent and one.read_job()["state"] == "RUNNING"
    one.call("POST", "/cancel")
    ended = one.ended()
    assert (ended["state"], [attempt["state"] for attempt in ended["attempts"]]) == ("CANCELLED", ["CANCELLED"])
    assert one.ended_by() == "server"
    assert is_gone(parent), "no process runs after the report"


def test_the_job_of_a_frozen_worker_is_cancelled_and_its_code_ends_after_the_thaw(running, job):
    one = job(FAMILY.format(running.folder / "frozen"))
    parent, _ = family(running.folder, "frozen")
    agent = running.processes["worker"]
    freeze(agent)
    try:
        one.call("POST", "/cancel")
        ended = one.ended()
        assert (ended["state"], [attempt["state"] for attempt in ended["attempts"]]) == ("CANCELLED", ["CANCELLED"])
        assert one.ended_by() == "liveness", ended
        assert "did not confirm" in ended["timeline"][-2]["reason"]
        assert not is_gone(parent), "no worker could end it"
    finally:
        thaw(agent)
    eventually(lambda: is_gone(parent), why="the worker hears that it is not its own any more")
    assert job("true").ended()["state"] == "COMPLETED"
    assert agent.poll() is None


def test_lines_of_both_streams_keep_their_order_and_a_cut_is_marked(running, job):
    go = running.folder / "go-on"
    wait = f"while [ ! -e {go}.%d ]; do sleep 0.05; done"
    one = job(
        f"echo 1; {wait % 1}; echo 2 >&2; {wait % 2}; echo 3; head -c 9000 /dev/zero | tr '\\0' x; echo; seq 5 10050"
    )
    for number in (1, 2):  # each stream has its own pipe, so the order is that in which the agent reads them
        eventually(lambda number=number: len(one.lines()) == number, why=f"line {number} is seen")
        (running.folder / f"go-on.{number}").touch()
    assert one.ended()["state"] == "COMPLETED"
    lines = one.lines()
    assert lines[:3] == [("STDOUT", "1"), ("STDERR", "2"), ("STDOUT", "3")]
    assert lines[3] == ("STDOUT", "x" * 8189 + "…")
    assert lines[4:10_000] == [("STDOUT", str(number)) for number in range(5, 10_001)]
    assert lines[10_000:] == [("STDOUT", "… further lines are not kept")]


def test_lines_and_progress_are_seen_while_the_code_runs(running, job):
    go = running.folder / "go"
    one = job(f'echo here; echo "0.5 half" > "$JOB_PROGRESS"; while [ ! -e {go} ]; do sleep 0.05; done')
    eventually(lambda: one.lines() == [("STDOUT", "here")])
    eventually(lambda: one.read_job()["attempts"][0]["progress"] == 0.5)
    assert (one.read_job()["state"], one.read_job()["attempts"][0]["message"]) == ("RUNNING", "half")
    go.touch()
    assert one.ended()["state"] == "COMPLETED"


def test_an_output_above_the_limit_fails_its_job_and_names_size_and_limit(job):
    large = {"type": "callable", "path": "callables:large"}
    one, most = job(large, payload=262_143), job(large, payload=262_142)
    error = one.ended()["error"]
    assert (error["code"], "262145" in error["message"], "262144" in error["message"]) == (
        "OUTPUT_TOO_LARGE",
        True,
        True,
    )
    assert len(most.ended()["output"]) == 262_142
    assert one.read_job()["attempts"][0]["progress"] == 0.75


@pytest.fixture
def two(running):
    """Start a second worker, and end it with the test, because it would take the jobs of the next test."""
    running.agent("two", running.url, "--concurrency", "2", "--tags", "two")
    yield
    running.end(["two"])


def test_a_report_that_cannot_be_written_does_not_delay_the_others(running, two, job):
    with psycopg.connect(running.env["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(
            "create function broken() returns trigger language plpgsql as $$ begin raise 'a bad row'; end $$"
        )
        bad = job("true", tags=["two"], available_at="2100-01-01T00:00:00Z")
        connection.execute(
            "create trigger broken before update on jobs_workerjob for each row"
            f" when (old.id = '{bad.id}' and new.state = 'COMPLETED') execute function broken()"
        )
        connection.execute("update jobs_workerjob set available_at = now() where id = %s", [bad.id])
        eventually(lambda: bad.read_job()["state"] == "RUNNING", why="it runs, and its end cannot be written")
        good = job("echo ok", tags=["two"])
        assert good.ended()["state"] == "COMPLETED"
        assert bad.read_job()["state"] == "RUNNING"
        connection.execute("drop function broken() cascade")
    assert bad.ended()["state"] == "COMPLETED"
