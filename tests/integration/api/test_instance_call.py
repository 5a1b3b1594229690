"""Test `GET /instance`: it has the content of the Instance page."""

from datetime import datetime

import pytest

from jobs.services.liveness_check import check_liveness
from jobs.states import JobState
from liveness.conf import conf
from liveness.models import Server
from liveness.states import INITIAL, ServerState
from tests.support.people import employ, viewing
from tests.support.transitions import put


@pytest.fixture
def read_instance(api):
    viewer = api("viewer")

    def read_instance():
        answer = viewer.get("/instance")
        assert answer.status_code == 200, answer.json()
        return answer.json()

    return read_instance


def test_before_anything_is_there_all_is_nought(read_instance):
    instance = read_instance()
    assert instance["servers"] == instance["attention"] == instance["brakes"] == instance["about"] == []
    assert instance["jobs"] == dict.fromkeys(JobState, 0)
    assert instance["last_check"] == {"age_seconds": None, "took_seconds": None}
    assert instance["maintenance"] is instance["oldest_pending_seconds"] is None


def test_servers_are_counted_by_cluster_type_and_state(read_instance, worker, clock):
    for name in ("a", "b"):
        worker(name=name, cluster="north")
    clock.advance(10)
    worker(name="c")
    assert read_instance()["servers"] == [
        {"cluster": "default", "type": "WORKER", "state": "RUNNING", "servers": 1, "heard": 1},
        {"cluster": "north", "type": "WORKER", "state": "RUNNING", "servers": 2, "heard": 0},
    ]


def test_jobs_are_counted_and_the_oldest_that_could_be_claimed_is_timed(read_instance, worker, submit, clock):
    submit(available_at="2100-01-01T00:00:00Z")
    submit()
    clock.advance(70)
    submit()
    one = worker()
    assert read_instance()["oldest_pending_seconds"] == 70
    one.hold()
    instance = read_instance()
    assert {state: number for state, number in instance["jobs"].items() if number} == {"PENDING": 2, "RUNNING": 1}
    assert instance["oldest_pending_seconds"] == 0


def test_the_clock_that_stands_still_shows_by_its_lag(read_instance, worker, clock):
    conf_interval = conf().interval
    worker()
    check_liveness()
    clock.step(conf_interval)
    check_liveness()
    assert read_instance()["observed_clock"]["moves"] is False
    clock.step(100)
    instance = read_instance()
    assert instance["observed_clock"]["lag_seconds"] >= 100
    assert instance["last_check"]["age_seconds"] == 100
    assert 0 <= instance["last_check"]["took_seconds"] < 60


def test_servers_that_need_attention_come_in_the_order_of_their_next_step(read_instance, worker, submit, clock):
    submit()
    first, second, well = worker(name="z-first"), worker(name="a-second"), worker(name="well")
    first.hold()
    clock.advance(10)
    second.beat()
    clock.advance(20)
    well.beat()
    rows = read_instance()["attention"]
    assert [(row["server"]["name"], row["late"], row["held"]) for row in rows] == [
        ("z-first", True, 1),
        ("a-second", True, 0),
    ]
    moments = [datetime.fromisoformat(row["next_transition"]["at"]) for row in rows]
    assert moments == sorted(moments)
    assert {row["next_transition"]["to"] for row in rows} == {"DISCONNECTED"}


@pytest.mark.parametrize("state", sorted(set(ServerState) - {INITIAL}))
@pytest.mark.parametrize("silent", [False, True])
def test_the_same_servers_need_attention_in_the_api_and_on_the_pages(
    read_instance, worker, clock, client, state, silent
):
    user = employ()
    user.user_permissions.set(viewing())
    client.force_login(user)
    one = worker(name="one")
    put(Server.objects.get(pk=one.id), state)
    clock.advance(7 if silent else 1)
    listed = client.get("/admin/instance/servers/?attention=1").content.decode().partition('id="history"')[0]
    first = client.get("/admin/instance/").content.decode()
    named = [row["server"]["name"] for row in read_instance()["attention"]] == ["one"]
    assert (">one</a>" in listed, "<h2>Needs attention <small>1 server</small></h2>" in first) == (named, named)


def test_maintenance_and_brake_are_shown(read_instance, api, worker, clock):
    silent = [worker(name=name, old=True) for name in "abc"]
    api("operator").post("/maintenance/enter", {"note": "a new switch"})
    clock.advance(60)
    check_liveness()
    instance = read_instance()
    assert instance["maintenance"]["note"] == "a new switch"
    assert [(brake["type"], brake["silent"], brake["alive"]) for brake in instance["brakes"]] == [
        ("WORKER", 3, len(silent))
    ]
    assert all(row["next_transition"] is None for row in instance["attention"])


@pytest.mark.parametrize(("role", "status"), [("viewer", 200), ("operator", 200), ("client", 403), ("worker", 403)])
def test_only_viewers_and_operators_may_ask(api, role, status):
    assert api(role).get("/instance").status_code == status
