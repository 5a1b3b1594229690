"""Commands about backfills, and the calls of the client."""

import uuid
from datetime import UTC, datetime

import pytest

from controlplane.client.__main__ import main
from tests.support.scripted import Say

TRIGGER, ID = str(uuid.uuid4()), str(uuid.uuid4())
BACKFILL = {
    "id": ID, "trigger": TRIGGER, "from": "2030-01-01T00:00:00Z", "to": "2030-02-01T00:00:00Z", "max_running": 5,
    "state": "RUNNING", "total": 31, "waiting": 31, "running": 0, "by": "operator:me", "note": "",
    "created_at": "2030-03-01T00:00:00Z", "finished_at": None,
}  # fmt: skip
PATH = f"/triggers/{TRIGGER}/backfills"
PERIOD = ("--from", "2030-01-01T00:00:00Z", "--to", "2030-02-01T00:00:00Z")


@pytest.fixture
def run(plane, pauses, monkeypatch, capsys):
    monkeypatch.setenv("CONTROLPLANE_URL", plane.url)
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "secret")

    def run(*words):
        code = main(list(words))
        return code, capsys.readouterr().out

    return run


def test_a_backfill_is_begun_and_stopped(plane, run):
    plane.answers["POST", PATH] = [Say(201, BACKFILL)]
    assert run("backfill", TRIGGER, *PERIOD, "--max-running", "5", "--note", "n") == (
        0,
        f"{ID} RUNNING 31 total, 31 waiting, 0 running\n",
    )
    body = {"from": "2030-01-01T00:00:00Z", "to": "2030-02-01T00:00:00Z", "max_running": 5, "note": "n"}
    assert plane.calls[-1].body == body
    plane.answers["POST", f"{PATH}/{ID}/stop"] = [Say(200, {**BACKFILL, "state": "STOPPED", "waiting": 0})]
    code, out = run("stop-backfill", TRIGGER, ID)
    assert (code, out.split()[1]) == (0, "STOPPED")


def test_the_client_takes_times(plane, client):
    plane.answers["POST", PATH] = [Say(201, BACKFILL)]
    plane.answers["GET", f"{PATH}/{ID}"] = [Say(200, BACKFILL)]
    start, end = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 2, 1, tzinfo=UTC)
    begun = client.backfill({"id": TRIGGER}, start, end, max_running=5)
    assert plane.calls[-1].body["from"] == "2030-01-01T00:00:00+00:00"
    assert client.read_backfill(TRIGGER, begun) == BACKFILL
