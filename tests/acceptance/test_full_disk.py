"""A PostgreSQL whose disk is full: calls are 503, agents keep their reports, and nothing is lost."""

import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
import urllib3

from tests.support import services
from tests.support.processes import eventually, fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

SIZE = "160m"
CALM = {"LIVENESS_TIMEOUT": "60"}
"""The worker may not be lost: its first attempt must end the job."""
CONFIGURATION = "min_wal_size = 32MB\nmax_wal_size = 48MB\n"


class SmallPostgresql(services.Postgresql):
    def create(self):
        super().create()
        with (self.data / "postgresql.conf").open("a") as configuration:
            configuration.write(CONFIGURATION)


@pytest.fixture
def disk():
    """Mount a small disk."""
    place = Path(tempfile.mkdtemp(prefix="controlplane-disk-"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0755", "tmpfs", str(place)], check=False, capture_output=True
    )
    if done.returncode:
        place.rmdir()
        pytest.skip("this machine does not allow mounts")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)
    place.rmdir()


@pytest.fixture
def plane(tmp_path, disk):
    with SmallPostgresql(disk) as database, fleet(tmp_path, DATABASE_URL=database.url, **CALM) as running:
        running.database, running.disk = database, disk
        running.migrate()
        running.api = f"{running.web()}/api/v1"
        running.executor("executor", "--beat")
        running.agent("one", running.api.removesuffix("/api/v1"))
        yield running


def ask(running, question):
    with psycopg.connect(running.database.url, autocommit=True) as connection:
        return connection.execute(question).fetchall()


def submit(running, command, payload=None):
    """Return the response, or nothing if the call timed out."""
    with suppress(urllib3.exceptions.HTTPError):
        return running.http.request(
            "POST",
            f"{running.api}/jobs",
            json={
                "action": {"type": "script", "command": command},
                "payload": payload,
                "tags": ["none"] * bool(payload),
            },
            headers={"Authorization": f"Bearer {running.token('client')}"},
        )


def fill(disk):
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(1 << 16))


def is_running_again(running):
    """Start PostgreSQL if it gave up, as an administrator would."""
    with suppress(psycopg.Error):
        return ask(running, "select 1")
    with suppress(AssertionError):
        running.database.start()
    return None


def test_nothing_is_lost_when_there_is_room_again(plane):
    may_end, began, ended = (plane.folder / name for name in ("may-end", "began", "ended"))
    script = f'touch "{began}"; until [ -e "{may_end}" ]; do sleep 0.05; done; echo kept; touch "{ended}"'
    job = submit(plane, script).json()["id"]
    eventually(began.exists, why="its code runs")
    accepted, refused = [], []
    fill(plane.disk)

    def is_refused():
        answer = submit(plane, "true", os.urandom(200_000).hex())
        if answer is not None and answer.status == 201:
            accepted.append(answer.json()["id"])
        elif answer is not None:
            refused.append(answer)
        return len(refused) >= 3

    eventually(is_refused, why="the disk is full")
    assert {answer.status for answer in refused} == {503}, [answer.data for answer in refused]
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
    assert {answer.json()["code"] for answer in refused} <= {"database_unavailable", "outcome_unknown"}
    may_end.touch()
    eventually(ended.exists, why="its code ends while the disk is full")
    log = plane.folder / "one.log"
    eventually(lambda: "Control plane unreachable" in log.read_text(), why="the agent's calls are refused")
    (plane.disk / "filler").unlink()
    eventually(lambda: is_running_again(plane), why="PostgreSQL runs")

    def is_completed():
        with suppress(AssertionError, urllib3.exceptions.HTTPError):
            return plane.call("GET", f"{plane.api}/jobs/{job}", plane.token("client"))["state"] == "COMPLETED"

    eventually(is_completed, why="the report arrives")
    found = plane.call("GET", f"{plane.api}/jobs/{job}", plane.token("client"))
    assert found["output"]["stdout"].strip() == "kept"
    assert [attempt["number"] for attempt in found["attempts"]] == [1]
    stored = {str(id) for (id,) in ask(plane, "select id from jobs_workerjob")}
    assert stored >= {job, *accepted}
    assert ask(plane, "select state from liveness_server where type = 'WORKER'") == [("RUNNING",)]
