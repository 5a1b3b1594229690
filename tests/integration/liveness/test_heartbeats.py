"""Test heartbeats: a server reports its attempts and its state, and receives instructions."""

import uuid

import pytest

from jobs.models import Attempt
from liveness.models import AttemptHeartbeat, Heartbeat, Server, ServerEvent
from liveness.sql import OWN_EVENTS_LIMIT
from tests.support.http import Caller, Worker
from tests.support.transitions import put

ENDED = ["TERMINATED_GRACEFULLY", "TERMINATED_FORCED"]
GONE = ["NOT_RUNNING", "INACTIVE"]


def row(worker):
    return Server.objects.get(pk=worker.id)


def clocks(worker):
    server = row(worker)
    return server.last_heartbeat_at, server.state_changed_at, server.created_at


def moves(worker):
    events = ServerEvent.objects.filter(server_id=worker.id).order_by("id")
    return [(event.from_state, event.to_state, event.actor, event.reason) for event in events]


def refusal(answer):
    return answer.status_code, answer.json()["code"]


def test_the_response_has_all_that_a_server_needs(worker):
    assert worker().beat().json() == {
        "state": "RUNNING",
        "heartbeat_interval_seconds": 3,
        "fence_after_seconds": 336,
        "cancel": [],
        "lost": [],
        "cordoned": False,
        "maintenance": False,
        "drain": None,
        "config": {"max_concurrent": 10, "tags": ["python", "script"]},
        "dump": [],
    }


def test_a_beat_moves_the_heartbeat_clock_and_no_other(worker, clock):
    one = worker()
    heard_at, changed, created = clocks(one)
    clock.advance(5)
    one.beat()
    assert clocks(one)[0] > heard_at
    assert clocks(one)[1:] == (changed, created)


def test_metrics_are_kept_until_others_come(worker):
    one = worker()
    one.beat(metrics={"load": 1.5, "queue": {"a": [1]}})
    one.beat()
    assert row(one).metrics == {"load": 1.5, "queue": {"a": [1]}}
    one.beat(metrics={"load": 2})
    assert row(one).metrics == {"load": 2}


def test_each_beat_leaves_a_line_of_history(worker, submit):
    submit(), submit()
    one = worker(hostname="h")
    claimed, running = one.hold(running=False)["id"], one.hold()["id"]
    Heartbeat.objects.all().delete()
    one.beat(claimed=[claimed], running=[{"attempt": running, "pid": 7}])
    lines = AttemptHeartbeat.objects.order_by("role").values_list("role", "server_id", "attempt_id", "hostname", "pid")
    server = uuid.UUID(one.id)
    assert list(lines) == [
        ("claimer", server, uuid.UUID(claimed), "h", None),
        ("runner", server, uuid.UUID(running), "h", 7),
    ]
    assert list(Heartbeat.objects.values_list("server_id", flat=True)) == [server]


def test_only_the_attempts_in_a_heartbeat_count_as_alive(worker, submit):
    submit(), submit()
    one = worker()
    named, silent = one.hold()["id"], one.hold()["id"]
    one.beat(running=[{"attempt": named, "pid": 7}])
    assert Attempt.objects.get(pk=named).heartbeat_at is not None
    assert Attempt.objects.get(pk=named).pid == 7
    assert Attempt.objects.get(pk=silent).heartbeat_at is None
    one.beat(running=[{"attempt": named}])
    assert Attempt.objects.get(pk=named).pid == 7


def test_attempts_that_a_server_no_longer_holds_are_lost_and_not_alive(worker, submit):
    submit(), submit()
    one, other = worker(name="one"), worker(name="other")
    ended, others, unknown = one.hold(), other.hold()["id"], str(uuid.uuid4())
    one.complete(ended)
    body = one.beat(claimed=[others], running=[{"attempt": ended["id"]}, {"attempt": unknown}]).json()
    assert sorted(body["lost"]) == sorted([ended["id"], others, unknown])
    assert Attempt.objects.get(pk=others).heartbeat_at is None


def test_a_worker_cordons_itself_with_a_reason_until_it_lifts_the_cordon(worker):
    one = worker()
    assert one.beat(schedulable=False, reason="disk full").json()["cordoned"] is True
    assert (row(one).cordoned_by, row(one).cordon_reason) == ("server", "disk full")
    assert one.beat().json()["cordoned"] is True
    assert one.beat(schedulable=True).json()["cordoned"] is False
    assert (row(one).cordoned_by, row(one).cordon_reason) == (None, "")
    assert row(one).state == "RUNNING"


@pytest.mark.parametrize("more", [{}, {"claimed": []}], ids=["plain", "with attempts"])
def test_that_a_server_cordons_itself_and_lifts_it_is_an_event_each_with_its_reason(worker, more):
    one = worker()
    for schedulable, reason in (
        (True, "well"), (False, "disk full"), (False, "disk fuller"), (True, "well again"), (True, ""), (None, ""),
    ):  # fmt: skip
        cordon = {} if schedulable is None else {"schedulable": schedulable, "reason": reason}
        assert one.beat(**cordon, **more).status_code == 200
    events = ServerEvent.objects.exclude(action="").values_list("action", "actor", "reason", "server_name", "to_state")
    assert list(events) == [
        ("cordon", "server", "disk full", "worker-1", "RUNNING"),
        ("uncordon", "server", "well again", "worker-1", "RUNNING"),
    ]


@pytest.mark.parametrize("more", [{}, {"claimed": []}], ids=["plain", "with attempts"])
def test_a_server_that_cordons_itself_again_and_again_gets_no_endless_events(worker, clock, more):
    one, other = worker(), worker(name="other")
    for number in range(OWN_EVENTS_LIMIT + 5):
        assert one.beat(schedulable=number % 2 == 1, reason="full", **more).json()["cordoned"] is (number % 2 == 0)
    events = ServerEvent.objects.filter(server_id=one.id, actor="server")
    assert events.count() == OWN_EVENTS_LIMIT
    assert events.latest("id").reason == "full; more changes within the hour are not recorded"
    other.beat(schedulable=False)
    assert ServerEvent.objects.filter(server_id=other.id, action="cordon").count() == 1
    clock.advance(3601)
    one.beat(schedulable=True, reason="well")
    assert events.latest("id").reason == "well"


def test_a_server_that_changes_to_maintenance_too_often_keeps_its_state(worker, clock):
    one = worker()
    for number in range(OWN_EVENTS_LIMIT + 5):
        answer = one.beat(state="RUNNING" if number % 2 else "MAINTENANCE")
        assert answer.status_code == 200
    assert answer.json()["state"] == row(one).state
    assert ServerEvent.objects.filter(server_id=one.id, actor="server").count() == OWN_EVENTS_LIMIT
    assert one.beat(state="TERMINATING").json()["state"] == "TERMINATING", "an end is always taken"


def test_a_server_that_was_held_in_its_state_may_change_it_an_hour_later(worker, clock):
    one = worker()
    for number in range(OWN_EVENTS_LIMIT + 1):
        one.beat(state="RUNNING" if number % 2 else "MAINTENANCE")
    held, wanted = row(one).state, ({"RUNNING", "MAINTENANCE"} - {row(one).state}).pop()
    assert one.beat(state=wanted).json()["state"] == held
    clock.advance(3601)
    assert one.beat(state=wanted).json()["state"] == wanted


def test_under_the_cordon_of_an_operator_a_servers_own_cordon_is_no_event(worker):
    one = worker()
    Server.objects.update(cordoned_by="operator:ann", cordon_reason="a new disk")
    for schedulable in (False, True):
        one.beat(schedulable=schedulable, reason="mine")
    assert not ServerEvent.objects.exclude(action="").exists()


def test_a_worker_neither_lifts_nor_rewords_the_cordon_of_an_operator(worker):
    one = worker()
    Server.objects.update(cordoned_by="operator:ann", cordon_reason="a new disk")
    for schedulable in (False, True):
        assert one.beat(schedulable=schedulable, reason="mine").json()["cordoned"] is True
        assert (row(one).cordoned_by, row(one).cordon_reason) == ("operator:ann", "a new disk")


def test_a_state_is_taken_once_with_the_reported_reason(worker):
    one = worker()
    for _ in range(2):
        assert one.beat(state="ERROR", reason="segfault").json()["state"] == "ERROR"
    assert moves(one)[1:] == [("RUNNING", "ERROR", "server", "segfault")]


def test_the_beat_of_an_illegal_transition_still_counts(worker, clock):
    one = worker()
    one.beat(state="TERMINATING")
    heard_at, changed, _ = clocks(one)
    clock.advance(5)
    assert refusal(one.beat(state="RUNNING")) == (409, "illegal_transition")
    assert clocks(one)[0] > heard_at
    assert (row(one).state, clocks(one)[1]) == ("TERMINATING", changed)


def test_a_disconnected_server_is_refused_and_its_heartbeat_does_not_count(worker, clock):
    one = worker()
    put(row(one), "DISCONNECTED")
    before = clocks(one)
    clock.advance(5)
    for fields in ({}, {"state": "RUNNING"}, {"state": "DISCONNECTED"}, {"metrics": {"load": 1}}):
        assert refusal(one.beat(**fields)) == (409, "server_disconnected")
    assert clocks(one) == before
    assert row(one).state == "DISCONNECTED"


def test_a_disconnected_server_may_end_in_order_and_beats_until_then(worker, clock):
    one = worker()
    put(row(one), "DISCONNECTED")
    heard_at = clocks(one)[0]
    clock.advance(5)
    assert one.beat(state="TERMINATING").json()["state"] == "TERMINATING"
    assert clocks(one)[0] > heard_at
    assert one.beat().status_code == 200
    assert one.beat(state="TERMINATED_FORCED").json()["state"] == "TERMINATED_FORCED"


@pytest.mark.parametrize("final", ENDED)
@pytest.mark.parametrize("from_", ["CREATED", "RUNNING", "MAINTENANCE", "ERROR", "DISCONNECTED"])
def test_a_final_state_out_of_the_blue_writes_terminating_first(api, from_, final):
    one = Worker.register(api("worker"))
    put(row(one), from_)
    before = len(moves(one))
    assert one.beat(state=final, reason="SIGTERM").json()["state"] == final
    assert [(from_, to, actor) for from_, to, actor, _ in moves(one)[before:]] == [
        (from_, "TERMINATING", "server"),
        ("TERMINATING", final, "server"),
    ]


@pytest.mark.parametrize("later", [*ENDED[:1], *GONE])
@pytest.mark.parametrize("final", ENDED)
def test_a_repeated_final_beat_is_a_200_ever_after_and_changes_nothing(worker, clock, final, later):
    one = worker()
    one.beat(state=final)
    if later in GONE:
        put(row(one), later)
    before, moves_before = clocks(one), moves(one)
    clock.advance(5)
    for _ in range(2):
        assert one.beat(state=final).status_code == 200
    assert (clocks(one), moves(one)) == (before, moves_before)


def test_a_server_that_has_ended_one_way_cannot_end_another_way(worker):
    one = worker()
    one.beat(state="TERMINATED_GRACEFULLY")
    assert refusal(one.beat(state="TERMINATED_FORCED")) == (409, "illegal_transition")
    assert refusal(one.beat(state="RUNNING")) == (409, "illegal_transition")
    put(row(one), "NOT_RUNNING")
    assert refusal(one.beat(state="TERMINATED_FORCED")) == (409, "server_not_running")


@pytest.mark.parametrize("reported_state", [None, "CREATED", "RUNNING", "TERMINATING", *ENDED, *GONE])
@pytest.mark.parametrize("state", GONE)
def test_no_server_comes_back_from_the_dead(worker, clock, state, reported_state):
    one = worker()
    put(row(one), "ERROR")
    put(row(one), state)
    before, moves_before = clocks(one), moves(one)
    clock.advance(5)
    assert refusal(one.beat(**({} if reported_state is None else {"state": reported_state}))) == (
        409,
        "server_not_running",
    )
    assert (clocks(one), moves(one)) == (before, moves_before)


def test_beats_after_the_end_move_no_clock(worker, clock):
    one = worker()
    one.beat(state="TERMINATED_GRACEFULLY")
    before = clocks(one)
    clock.advance(5)
    one.beat()
    one.beat(state="TERMINATED_GRACEFULLY")
    assert clocks(one) == before


@pytest.mark.parametrize("fields", [{}, {"state": "RUNNING"}, {"state": "TERMINATED_GRACEFULLY"}])
def test_a_purged_server_is_a_410_for_each_of_its_calls(worker, fields):
    one = worker()
    Server.objects.all().delete()
    assert refusal(one.beat(**fields)) == (410, "server_unknown")
    assert refusal(one.post(f"/servers/{one.id}/claims", {"limit": 1})) == (410, "server_unknown")
    reports = {"reports": [{"attempt": str(uuid.uuid4()), "event": "STARTED"}]}
    assert refusal(one.post(f"/servers/{one.id}/reports", reports)) == (410, "server_unknown")


@pytest.mark.parametrize("call", ["heartbeat", "claims", "reports"])
def test_a_revoked_server_token_is_a_401(worker, call):
    one = worker()
    Server.objects.update(token_version=2)
    body = {"reports": [{"attempt": str(uuid.uuid4()), "event": "STARTED"}]} if call == "reports" else {}
    answer = one.post(f"/servers/{one.id}/{call}", body)
    assert refusal(answer) == (401, "token_revoked")
    assert answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize("call", ["heartbeat", "claims", "reports"])
def test_a_call_is_its_own_servers_only(worker, api, call):
    one, other = worker(name="one"), worker(name="other")
    before = clocks(one)
    body = {"reports": []} if call == "reports" else {}
    callers = [other, *(api(role) for role in ("worker", "client", "viewer", "operator"))]
    for caller in callers:
        assert refusal(caller.post(f"/servers/{one.id}/{call}", body)) == (403, "not_your_server")
        assert refusal(caller.post(f"/servers/{uuid.uuid4()}/{call}", body)) == (403, "not_your_server")
    assert clocks(one) == before
    assert Caller(one.token).post(f"/servers/{one.id}/{call}", body).status_code == 200


def test_the_answer_to_terminating_holds_what_that_leaves_of_the_fence(worker, clock):
    one = worker(config={"termination_grace_period_seconds": 100})
    assert one.beat(state="RUNNING").json()["fence_after_seconds"] == 45 * 0.8 + 100
    assert one.beat(state="TERMINATING").json()["fence_after_seconds"] == 100 - 45 * 0.2
    clock.advance(80)
    assert one.beat(state="TERMINATING").json()["fence_after_seconds"] == 45 * 0.8
    clock.advance(60)  # 140 of the 145 s that it has at the most, though it beats
    assert one.beat(state="TERMINATING").json()["fence_after_seconds"] == 0
