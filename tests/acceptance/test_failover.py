"""Promotion of a real standby while jobs run: with a synchronous standby, and with one that lacks transactions."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.support import services
from tests.support.processes import eventually, fleet
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

CALM = {"LIVENESS_TIMEOUT": "60"}
"""No worker may be lost: the tests expect the very attempts that a promotion leaves."""
IN_AN_HOUR = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
# Each attempt holds a lock while it runs, so a second one that runs at the same time is written down.
SCRIPT = """exec 9>>"{folder}/{name}.lock"
flock -n 9 || echo overlap >> "{folder}/{name}"
echo "attempt $JOB_ATTEMPT" >> "{folder}/{name}"
until [ -e "{folder}/{name}.may-end" ] || [ "$JOB_ATTEMPT" -gt 1000 ]; do sleep 0.05; done"""


@pytest.fixture
def plane(tmp_path):
    """Start a control plane on a primary with a standby, behind an address that can be led to either."""
    with (
        services.Postgresql() as primary,
        services.Standby(primary) as standby,
        Proxy(primary.url) as address,
        fleet(tmp_path, DATABASE_URL=address.url, JOBS_RUNNER_HEARTBEAT_INTERVAL="1", **CALM) as running,
    ):
        running.primary, running.standby, running.address = primary, standby, address
        running.migrate()
        running.api = f"{running.web()}/api/v1"
        running.executor("executor", "--beat")
        for name in ("one", "two"):
            running.agent(name, running.api.removesuffix("/api/v1"))
        eventually(lambda: workers(running, primary) == ["RUNNING"] * 2, why="both workers run")
        yield running


def ask(server, question, *values):
    with psycopg.connect(server.url, autocommit=True) as connection:
        found = connection.execute(question, values)
        return found.fetchall() if found.description else []


def make_available(server, id):
    ask(server, "update jobs_workerjob set available_at = clock_timestamp() where id = %s", id)


def workers(running, server):
    with suppress(psycopg.Error):
        return [state for (state,) in ask(server, "select state from liveness_server where type = 'WORKER'")]


def submit(running, name, **fields):
    action = {"type": "script", "command": SCRIPT.format(folder=running.folder, name=name)}
    return running.call("POST", f"{running.api}/jobs", running.token("client"), {"action": action, **fields})["id"]


def job(running, id):
    """Return the job, or nothing while the database is away."""
    with suppress(AssertionError):
        return running.call("GET", f"{running.api}/jobs/{id}", running.token("client"))


def written(running, name):
    path = running.folder / name
    return path.read_text().splitlines() if path.exists() else []


def end(running, name):
    (running.folder / f"{name}.may-end").touch()


def fail_over(running):
    running.primary.stop()
    running.standby.promote()
    running.address.lead_to(running.standby.url)


def attempts(running, id):
    return [(attempt["number"], attempt["state"]) for attempt in job(running, id)["attempts"]]


def is_completed(running, id):
    return eventually(lambda: (job(running, id) or {}).get("state") == "COMPLETED", why="it completes")


def test_a_synchronous_standby_continues_with_every_job(plane):
    ask(plane.primary, "alter system set synchronous_standby_names = '*'")
    ask(plane.primary, "select pg_reload_conf()")
    eventually(lambda: ask(plane.primary, "select sync_state from pg_stat_replication") == [("sync",)])
    end(plane, "ended")
    ended = submit(plane, "ended")
    is_completed(plane, ended)
    runs = submit(plane, "runs")
    eventually(lambda: written(plane, "runs") == ["attempt 1"], why="its code runs")
    waits = submit(plane, "waits", available_at=IN_AN_HOUR)
    fail_over(plane)
    make_available(plane.standby, waits)
    is_completed(plane, waits)
    assert attempts(plane, waits) == [(1001, "COMPLETED")]
    end(plane, "runs")
    is_completed(plane, runs)
    assert attempts(plane, runs) == [(1, "COMPLETED")]
    assert job(plane, ended)["state"] == "COMPLETED"
    assert written(plane, "runs") == ["attempt 1"] and written(plane, "ended") == ["attempt 1"]
    assert workers(plane, plane.standby) == ["RUNNING"] * 2


@pytest.mark.exhaustive
def test_a_lost_claim_gives_no_attempt_number_out_twice(plane):
    claimed = submit(plane, "claimed", available_at=IN_AN_HOUR)
    eventually(
        lambda: ask(plane.standby, "select 1 from jobs_workerjob where id = %s", claimed), why="it is replicated"
    )
    ask(plane.standby, "alter system set primary_conninfo = ''")
    ask(plane.standby, "select pg_reload_conf()")
    eventually(lambda: not ask(plane.primary, "select 1 from pg_stat_replication"), why="nothing is replicated")
    lost = submit(plane, "lost", available_at=IN_AN_HOUR)
    make_available(plane.primary, claimed)
    eventually(lambda: written(plane, "claimed") == ["attempt 1"], why="its code runs")
    fail_over(plane)
    make_available(plane.standby, claimed)
    is_completed(plane, claimed)
    assert attempts(plane, claimed) == [(1001, "COMPLETED")]
    assert written(plane, "claimed") == ["attempt 1", "attempt 1001"]
    assert not ask(plane.standby, "select 1 from jobs_workerjob where id = %s", lost)
    assert workers(plane, plane.standby) == ["RUNNING"] * 2
    said = dict(line.split(": ", 1) for line in plane.run("manage.py", "after_restore").splitlines())
    assert said["Timeline of the database"] == "2"
    assert said["Lost"].startswith("changes after 2")
