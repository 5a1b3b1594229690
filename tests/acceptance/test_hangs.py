"""Hangs of parts of the control plane, on real processes: some or all heartbeats do not arrive.

No live server is disconnected because of a hang. The brake is off, so this shows that observed time stops.
"""

import os
import signal
import threading
import time
from contextlib import contextmanager, suppress

import psycopg
import pytest
import urllib3

from tests.support.processes import eventually, fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1200), pytest.mark.exhaustive]

CROWD, AGENTS, TIMEOUT = 8, 2, 6.0
SETTINGS = {
    "LIVENESS_TIMEOUT": f"{TIMEOUT:g}",
    "LIVENESS_BRAKE_MINIMUM": "none",
    "JOBS_RUNNER_HEARTBEAT_INTERVAL": "0.5",  # so that heartbeats of workers list their attempts and write to them
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    with fleet(tmp_path_factory.mktemp("hangs"), CELERY_BROKER_URL="filesystem://", **SETTINGS) as running:
        running.url, client = running.web(), running.token("client")
        # Each check that meets a lock hangs. There must be threads for the next checks.
        running.env["DATABASE_POOL_SIZE"] = "32"
        running.executor("executor", "--beat", "--concurrency", "32")
        running.env["DATABASE_POOL_SIZE"] = "4"
        token = running.token("worker")
        running.start("crowd", "-m", "tests.support.crowd", running.url, str(CROWD), "crowd", CONTROLPLANE_TOKEN=token)
        for number in range(AGENTS):
            running.agent(f"worker-{number}", running.url)
            job = {"action": {"type": "script", "command": "sleep 1000"}}
            running.job = running.call("POST", f"{running.url}/api/v1/jobs", client, job)["id"]
        eventually(lambda: query(running, "select count(*) from jobs_attempt where state = 'RUNNING'") == AGENTS)
        advances(running)
        yield running


def query(running, statement):
    with psycopg.connect(running.env["DATABASE_URL"]) as connection:
        return connection.execute(statement).fetchone()[0]


def disconnected(running):
    return query(running, "select coalesce(array_agg(name), '{}') from liveness_server where name <> 'doomed'"
                          " and (state = 'DISCONNECTED' or disconnected_observed is not null)")  # fmt: skip


def advances(running):
    """Return True if observed time advances and every heartbeat arrives."""
    began = query(running, "select reading from liveness_clock")
    eventually(lambda: query(running, "select reading from liveness_clock") > began + 2 * TIMEOUT, within=120)
    eventually(
        lambda: query(
            running,
            "select bool_and(last_heartbeat_at > clock_timestamp() - interval '2 s') from liveness_server"
            " where state = 'RUNNING'",
        )
    )


@contextmanager
def locked(running, table, mode):
    with psycopg.connect(running.env["DATABASE_URL"]) as connection:
        connection.execute(f"lock table {table} in {mode} mode")
        yield


def wait(seconds):
    """Sleep for the length of a hang. Nothing is expected to be done by then."""
    time.sleep(seconds)


@pytest.mark.parametrize(
    ("table", "mode"),
    [("jobs_attempt", "share"), ("jobs_attempt", "access exclusive"), ("liveness_heartbeat", "exclusive")],
)
def test_a_table_that_heartbeats_touch_is_locked(everything, table, mode):
    with locked(everything, table, mode):  # share: as CREATE INDEX does
        wait(4 * TIMEOUT)
    advances(everything)
    assert disconnected(everything) == []


def test_hanging_calls_in_all_other_seats_do_not_stop_heartbeats(everything):
    address = f"{everything.url}/api/v1/jobs/{everything.job}/logs"
    headers = {"Authorization": f"Bearer {everything.token('client')}"}
    over = threading.Event()

    def read():
        with urllib3.PoolManager(retries=False) as http:
            while not over.wait(0.1):
                with suppress(urllib3.exceptions.HTTPError):
                    http.request("GET", address, headers=headers, timeout=5 * TIMEOUT)

    readers = [threading.Thread(target=read, daemon=True) for _ in range(16)]
    with locked(everything, "jobs_logline", "access exclusive"):
        for reader in readers:
            reader.start()
        advances(everything)
        assert everything.answers(f"{everything.url}/livez")
        assert disconnected(everything) == []
        over.set()
    for reader in readers:
        reader.join(60)


def test_frozen_backends_disconnect_no_live_server(everything):
    """Freeze the backends one after the other with SIGSTOP. The kernel still answers, so no TCP timeout ends a wait."""
    with psycopg.connect(everything.env["DATABASE_URL"]) as connection:
        backends = connection.execute(
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " order by state_change desc limit 8"
        ).fetchall()
    assert backends
    for (pid,) in backends:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        wait(1.5 * TIMEOUT)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        assert disconnected(everything) == []
    advances(everything)
    assert disconnected(everything) == []


def test_a_dead_server_is_still_found(everything):
    of_it = "select count(*) from liveness_server where name = 'doomed' and "
    everything.agent("doomed", everything.url, "--tags", "doomed", "--allow", "callable")
    eventually(lambda: query(everything, of_it + "state = 'RUNNING'"), why="it runs")
    everything.kill("doomed")
    eventually(lambda: query(everything, of_it + "disconnected_observed is not null"))
