"""A worker that is cut off or frozen stops its jobs by itself before they are given away: nothing runs in two places.

The worker's jobs append a line every 50 ms to a file; the moment of the last one is when its code stopped. The moment
at which the control plane gave the job away is in the database. The margin between the two must be positive.
"""

import signal
import threading
import time
from contextlib import contextmanager

import psutil
import psycopg
import pytest

from tests.support.processes import eventually, fleet, freeze, thaw

pytestmark = pytest.mark.acceptance

TIMEOUT, GRACE = 3.0, 1.0
AT_ONCE, AFTER, NEVER = "IMMEDIATELY", "AFTER_TERMINATION_GRACE_PERIOD", "NEVER"
FENCE = {AT_ONCE: 0.8 * TIMEOUT, AFTER: 0.8 * TIMEOUT + GRACE}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    timings = {
        "LIVENESS_TIMEOUT": f"{TIMEOUT:g}",
        "LIVENESS_TERMINATION_GRACE_PERIOD": f"{GRACE:g}",
        # Long before any fence. Jobs on a silent server are not stale because of it.
        "JOBS_RUNNING_STALE_AFTER": "2",
        "JOBS_RUNNER_HEARTBEAT_INTERVAL": "0.5",
        "JOBS_SWEEP_INTERVAL": "0.5",
    }
    with fleet(tmp_path_factory.mktemp("fence"), **timings) as running:
        running.url, running.client = running.web(), running.token("client")
        running.executor("executor", "--beat")
        yield running


@pytest.fixture
def working(running):
    """Start a worker with a restart strategy and give it a job: `record, job = working(name, strategy)`."""

    def working(name, strategy, *options):
        arguments = ["--restart-strategy", strategy, "--tags", name, "--concurrency", "1", *options]
        running.agent(name, running.url, *arguments)
        record = running.folder / f"{name}.record"
        script = f"while true; do date +%s.%N >> {record}; sleep 0.05; done"
        action = {"type": "script", "command": script}
        job = running.call("POST", f"{running.url}/api/v1/jobs", running.client, {"action": action, "tags": [name]})
        eventually(lambda: record.exists() and len(record.read_text().split()) > 5, why=f"{name} works")
        return record, job["id"]

    return working


def attempt(running, job):
    return running.call("GET", f"{running.url}/api/v1/jobs/{job}", running.client)["attempts"][0]


def given_away_at(running, job):
    """Return the time at which the attempt was given away, in seconds of the clock that machine and database share."""
    with psycopg.connect(running.env["DATABASE_URL"]) as connection:
        row = connection.execute(
            "select extract(epoch from finished_at)::float8 from jobs_attempt where job_id = %s"
            " and state = 'RESUBMITTED'",
            [job],
        ).fetchone()
    return row[0] if row else None


def state_of(running, name):
    with psycopg.connect(running.env["DATABASE_URL"]) as connection:
        [(state,)] = connection.execute("select state from liveness_server where name = %s", [name]).fetchall()
    return state


def last_line(record):
    return float(record.read_text().split()[-1])


@contextmanager
def stalls():
    """Yield a list of the moments at which this process could not run for longer than a reaper may be late."""
    found, over = [], threading.Event()

    def watch():
        last = time.time()
        while not over.wait(0.05):
            now = time.time()
            if now - last > 0.2:
                found.append(now)
            last = now

    witness = threading.Thread(target=watch)
    witness.start()
    try:
        yield found
    finally:
        over.set()
        witness.join(60)


def assert_in_time(measure):
    """Fail if the margin in seconds that `measure(number)` returns is below 0.

    Measure again if the machine stood still, because the process that stops the code may then be late as well.
    """
    for number in range(5):
        with stalls() as found:
            margin = measure(number)
        if margin > 0 or not found:
            break
    assert margin > 0, f"the code stopped {-margin:.2f} s too late"


@pytest.mark.parametrize("strategy", [AT_ONCE, AFTER])
def test_jobs_of_a_frozen_worker_stop_before_they_are_given_away(running, working, strategy):
    def measure(number):
        name = f"frozen-{number}-{strategy.lower()}"
        record, job = working(name, strategy)
        agent = running.processes[name]
        frozen_at = time.time()
        freeze(agent)
        given = eventually(lambda: given_away_at(running, job), why="the job is given away")
        while time.time() - frozen_at < 3 * TIMEOUT:
            time.sleep(0.1)  # the length of the freeze
        stopped = last_line(record)
        thaw(agent)
        assert agent.wait(60) != 0
        assert last_line(record) == stopped
        # The agent cannot stop the code, so the reaper does it a moment later.
        return min(given, frozen_at + FENCE[strategy] + 0.1 * TIMEOUT) - stopped

    assert_in_time(measure)


@pytest.mark.parametrize("strategy", [AT_ONCE, AFTER])
def test_frozen_while_it_terminates_its_jobs_stop_before_they_are_given_away(running, working, strategy):
    def measure(number):
        name = f"terminating-{number}-{strategy.lower()}"
        record, job = working(name, strategy, "--grace", "6")  # longer than the time until the freeze
        agent = running.processes[name]
        agent.send_signal(signal.SIGTERM)
        eventually(lambda: state_of(running, name) == "TERMINATING", why="it says so")
        freeze(agent)
        given = eventually(lambda: given_away_at(running, job), why="the job is given away")
        thaw(agent)
        agent.wait(60)
        return given - last_line(record)

    assert_in_time(measure)


def test_a_job_taken_from_a_live_worker_begins_elsewhere_after_its_code_stopped(running):
    record = running.folder / "moved.record"
    script = f"while true; do echo $JOB_ATTEMPT $(date +%s.%N) >> {record}; sleep 0.05; done"
    for name in ("moved-1", "moved-2"):
        running.agent(name, running.url, "--tags", "moved", "--concurrency", "1")
    job = {"action": {"type": "script", "command": script}, "tags": ["moved"]}
    job = running.call("POST", f"{running.url}/api/v1/jobs", running.client, job)["id"]

    def moments(number):
        lines = record.read_text().splitlines() if record.exists() else []
        return [float(at) for attempt, at in map(str.split, lines) if attempt == str(number)]

    for number in (1, 2, 3):
        eventually(lambda number=number: len(moments(number)) > 5, why=f"attempt {number} works")
        if number > 1:
            assert moments(number - 1)[-1] < moments(number)[0], "both ran"
        running.call("POST", f"{running.url}/api/v1/jobs/{job}/resubmit", running.client, {})
    running.call("POST", f"{running.url}/api/v1/jobs/{job}/cancel", running.client, {})


def test_while_the_brake_holds_them_nothing_moves_from_silent_workers(running, working):
    names = [f"braked-{number}" for number in range(3)]
    held = {name: working(name, AT_ONCE) for name in names}
    with psycopg.connect(running.env["DATABASE_URL"], autocommit=True) as connection:
        heard_long_enough = (
            "select from liveness_server where name = any(%s) and heard_observed - created_observed > timeout"
        )
        eventually(
            lambda: len(connection.execute(heard_long_enough, [names]).fetchall()) == len(names),
            why="they were heard for longer than their timeout, so they count",
        )
    for name in names:  # all at once: one that is silent alone for longer would be lost before the brake engages
        running.processes[name].send_signal(signal.SIGSTOP)
    for name in names:
        freeze(running.processes[name])
    frozen_at = time.time()
    with psycopg.connect(running.env["DATABASE_URL"], autocommit=True) as connection:
        eventually(
            lambda: connection.execute("select 1 from liveness_brake where type = 'WORKER'").fetchall(),
            why="the brake engages",
        )
    while time.time() - frozen_at < 3 * TIMEOUT:
        time.sleep(0.1)
    assert [state_of(running, name) for name in names] == ["RUNNING"] * 3
    attempts = [attempt(running, job) for _, job in held.values()]
    assert [one["state"] for one in attempts] == ["RUNNING"] * 3, attempts
    for name in names:
        thaw(running.processes[name])
    for record, job in held.values():
        given = eventually(lambda job=job: given_away_at(running, job), why="it was fenced, and gives its job back")
        assert record.read_text(), given
    for name in names:  # leave no silent server under the brake to the next tests
        running.processes[name].send_signal(signal.SIGTERM)
    for name in names:
        running.processes[name].wait(60)


def test_under_never_jobs_of_a_frozen_worker_are_not_given_away(running, working):
    record, job = working("frozen-never", NEVER)
    agent = running.processes["frozen-never"]
    freeze(agent)
    frozen_at = time.time()
    eventually(lambda: state_of(running, "frozen-never") == "NOT_RUNNING", why="it is given up")
    while time.time() - frozen_at < 3 * TIMEOUT:
        time.sleep(0.1)
    assert attempt(running, job)["state"] == "RUNNING"
    assert last_line(record) > frozen_at + TIMEOUT, "the job is not given away, so its code need not stop"
    thaw(agent)
    assert agent.wait(60) != 0
    assert given_away_at(running, job) is None


def test_a_freeze_shorter_than_the_fence_costs_no_work(running, working):
    record, job = working("nap", AT_ONCE, "--timeout", "30")  # so that its fence is far away
    agent = running.processes["nap"]
    freeze(agent)
    began = time.time()
    while time.time() - began < TIMEOUT:
        time.sleep(0.05)
    thaw(agent)
    woke = time.time()
    eventually(lambda: last_line(record) > woke + 1.5 * TIMEOUT, why="the same code goes on")
    assert attempt(running, job)["state"] == "RUNNING"
    assert psutil.Process(agent.pid).status() != psutil.STATUS_STOPPED
