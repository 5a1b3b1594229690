"""Test actions of operators on servers and on the whole control plane, over the API."""

import uuid

import pytest
from django.db import connection, transaction

from jobs.models import Attempt
from jobs.services import recovery
from jobs.services.liveness_check import check_liveness
from liveness.models import Brake, Server, ServerEvent
from tests.support.http import Caller, Worker
from tests.support.operators import ACTIONS, BEFORE, CALLS, engage
from tests.support.queries import CapturedQueries
from tests.support.transitions import put

ROLES = ["worker", "client", "viewer", "operator"]


def refusal(worker):
    answer = worker.post(f"/servers/{worker.id}/claims", {"limit": 1})
    return answer.status_code, answer.json().get("code")


# Callers


@pytest.mark.parametrize("name", list(CALLS))
def test_only_operators_act_and_viewers_look(api, worker, subtests, name):
    one = worker()
    callers = {role: api(role) for role in ROLES} | {"server": one, "none": Caller(None)}
    for step in BEFORE.get(name, []):
        method, address, body = CALLS[step]
        assert callers["operator"].call(method, address.format(one.id), body).status_code == 200
    engage()
    before = ServerEvent.objects.count()
    method, address, body = CALLS[name]
    allowed = {"operator", "viewer"} if method == "GET" else {"operator"}
    for role, caller in callers.items():
        with subtests.test(role), transaction.atomic():
            answer = caller.call(method, address.format(one.id), body)
            assert answer.status_code == (200 if role in allowed else 401 if role == "none" else 403), answer.json()
            assert answer.status_code == 200 or ServerEvent.objects.count() == before
            transaction.set_rollback(True)


WRONG_NOTES = [
    {}, {"note": ""}, {"note": None}, {"note": "x" * 1001}, {"note": 1}, {"note": "\0"}, {"note": "x", "more": 1},
]  # fmt: skip


@pytest.mark.parametrize("name", [*ACTIONS, "maintenance_enter", "maintenance_exit"])
def test_an_action_needs_a_note_and_nothing_else(operator, worker, subtests, name):
    one = worker()
    before = ServerEvent.objects.count()
    address = CALLS[name][1].format(one.id)
    for body in WRONG_NOTES:
        with subtests.test(body=body):
            assert operator.caller.post(address, body).status_code == 400
            assert ServerEvent.objects.count() == before


def test_a_note_of_a_thousand_letters_is_kept(operator, worker):
    operator("cordon", worker(), note="x" * 1000)
    assert ServerEvent.objects.last().reason == "x" * 1000


@pytest.mark.parametrize("deadline", [-1, "5m", True, None, 1e12])
def test_a_deadline_that_is_none_is_refused(operator, worker, deadline):
    operator("drain", worker(), status=400, deadline_seconds=deadline)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_server_that_is_not_there_is_a_404(operator, name):
    missing = type("Missing", (), {"id": uuid.uuid4()})
    assert operator(name, missing, status=404)["code"] == "not_found"


# Events


@pytest.mark.parametrize("name", ACTIONS[:4])
def test_an_action_writes_one_event_that_changes_no_state(operator, worker, name):
    one = worker()
    for step in BEFORE.get(name, []):
        operator(step, one)
    before = ServerEvent.objects.count()
    answer = operator(name, one, note="a new disk")
    assert answer["state"] == "RUNNING"
    event = ServerEvent.objects.last()
    assert ServerEvent.objects.count() == before + 1
    assert (event.action, event.actor, event.reason) == (name, "operator:a operator", "a new disk")
    assert (str(event.server_id), event.server_name) == (one.id, "worker-1")
    assert (event.from_state, event.to_state) == ("RUNNING", "RUNNING")


def test_a_disconnect_is_a_transition_with_one_event(operator, worker):
    one = worker()
    before = ServerEvent.objects.count()
    assert operator("disconnect", one, note="it burns")["state"] == "DISCONNECTED"
    event = ServerEvent.objects.last()
    assert ServerEvent.objects.count() == before + 1
    assert (event.from_state, event.to_state, event.action) == ("RUNNING", "DISCONNECTED", "")
    assert (event.actor, event.reason) == ("operator:a operator", "it burns")
    assert one.beat().json()["code"] == "server_disconnected"


def test_maintenance_is_noted_without_a_server(operator):
    shown = operator("maintenance_enter", note="new switches")["maintenance"]
    assert (shown["by"], shown["note"]) == ("operator:a operator", "new switches")
    assert shown["since"].endswith("Z")
    assert operator("maintenance_exit", note="done") == {"maintenance": None}
    events = ServerEvent.objects.values_list("action", "server_id", "actor", "reason", "from_state", "to_state")
    assert list(events) == [
        ("maintenance_enter", None, "operator:a operator", "new switches", "", ""),
        ("maintenance_exit", None, "operator:a operator", "done", "", ""),
    ]


def test_a_released_brake_has_its_actor_and_note(operator):
    engage(), engage("INDEXER")
    assert operator("brake_release", reason="they are gone") == {"released": ["INDEXER", "WORKER"]}
    assert set(Brake.objects.values_list("released_by", "release_reason")) == {("operator:a operator", "they are gone")}
    events = ServerEvent.objects.values_list("action", "subject_type", "subject_id", "reason")
    assert list(events) == [("brake_released", "brake", name, "they are gone") for name in ("INDEXER", "WORKER")]


def test_events_have_the_name_of_the_action(operator, worker, api):
    one = worker()
    operator("cordon", one)
    items = api("viewer").get(f"/servers/{one.id}/events").json()["items"]
    assert [(event["action"], event["to"]) for event in items] == [("", "RUNNING"), ("cordon", "RUNNING")]
    assert [event["note"] for event in items] == ["", "a test"]
    assert items[1]["subject"] == {"type": "server", "id": one.id, "name": "worker-1"}
    assert (items[1]["actor"], items[1]["reason"]) == ("operator:a operator", "a test")


# Refusals


@pytest.mark.parametrize(
    ("before", "name", "code"),
    [
        (["cordon"], "cordon", "already_cordoned"),
        (["drain"], "cordon", "already_cordoned"),
        ([], "uncordon", "not_cordoned"),
        (["cordon", "uncordon"], "uncordon", "not_cordoned"),
        (["drain"], "uncordon", "server_draining"),
        (["drain"], "drain", "server_draining"),
        ([], "undrain", "not_draining"),
        (["cordon"], "undrain", "not_draining"),
        (["drain", "undrain"], "uncordon", "not_cordoned"),
        (["disconnect"], "disconnect", "illegal_transition"),
        (["maintenance_enter"], "maintenance_enter", "already_in_maintenance"),
        ([], "maintenance_exit", "not_in_maintenance"),
        ([], "brake_release", "brake_not_engaged"),
    ],
)
def test_what_does_not_apply_now_is_refused_with_the_present_state(operator, worker, before, name, code):
    one = worker()
    for step in before:
        operator(step, one)
    count, row = ServerEvent.objects.count(), Server.objects.values().get()
    answer = operator(name, one, status=409)
    assert answer["code"] == code
    assert answer["detail"]
    if name in ACTIONS:
        assert answer["state"] == row["state"]
    assert ServerEvent.objects.count() == count
    assert Server.objects.values().get() == row


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("state", ["ERROR", "DISCONNECTED", "TERMINATING", "TERMINATED_FORCED", "NOT_RUNNING"])
def test_a_server_that_is_not_alive_is_left_alone(operator, worker, name, state):
    one = worker()
    put(Server.objects.get(), state)
    answer = operator(name, one, status=409)
    code = "illegal_transition" if name == "disconnect" else "server_not_alive"
    assert (answer["code"], answer["state"]) == (code, state)


@pytest.mark.parametrize("state", ["CREATED", "RUNNING", "MAINTENANCE"])
@pytest.mark.parametrize("name", ["cordon", "drain", "disconnect"])
def test_every_server_alive_can_be_acted_on(operator, api, name, state):
    one = Worker.register(api("worker"))
    put(Server.objects.get(), state)
    operator(name, one)


def test_a_released_brake_is_not_released_again(operator):
    engage()
    operator("brake_release")
    assert operator("brake_release", status=409)["code"] == "brake_not_engaged"


# Effects on work


@pytest.mark.parametrize(
    ("name", "undo", "code"),
    [
        ("cordon", "uncordon", "server_cordoned"),
        ("drain", "undrain", "server_cordoned"),
        ("maintenance_enter", "maintenance_exit", "maintenance"),
    ],
)
def test_new_work_stays_away_while_running_work_completes_until_it_is_undone(
    operator, worker, submit, name, undo, code
):
    first, second = submit(), submit()
    one = worker()
    attempt = one.hold()
    operator(name, one)
    assert refusal(one) == (409, code)
    assert one.complete(attempt, 42)["accepted"]
    assert submit.client.get(f"/jobs/{first['id']}").json()["output"] == 42
    submit()  # submissions queue
    assert refusal(one) == (409, code)
    operator(undo, one)
    assert one.hold()["job"]["id"] == second["id"]


def test_an_operators_cordon_replaces_a_servers_own_and_only_operators_lift_it(operator, worker, submit):
    submit()
    one = worker()
    one.beat(schedulable=False, reason="disk full")
    operator("cordon", one, note="look into it")
    one.beat(schedulable=True)
    assert refusal(one) == (409, "server_cordoned")
    operator("uncordon", one)
    assert len(one.claim()) == 1


def test_an_operator_lifts_a_servers_own_cordon(operator, worker, submit):
    submit()
    one = worker()
    one.beat(schedulable=False, reason="disk full")
    operator("uncordon", one)
    assert len(one.claim()) == 1


def test_a_cordoned_server_can_be_drained_and_undrain_lifts_both(operator, worker, submit):
    submit()
    one = worker()
    operator("cordon", one)
    operator("drain", one)
    operator("undrain", one)
    assert Server.objects.values_list("cordoned_by", "cordon_reason", "drain_deadline", "drain_held").get() == (
        None, "", None, None,
    )  # fmt: skip
    assert len(one.claim()) == 1


def test_a_worker_gets_it_with_its_next_heartbeat_in_one_statement(operator, worker, submit):
    one = worker()

    def read_flags():
        with CapturedQueries(connection) as queries:
            answer = one.beat().json()
        assert len(queries) == 1
        return answer["cordoned"], answer["maintenance"], answer["drain"]

    assert read_flags() == (False, False, None)
    operator("maintenance_enter")
    assert read_flags() == (False, True, None)
    operator("maintenance_exit")
    operator("cordon", one)
    assert read_flags() == (True, False, None)
    shown = operator("drain", one)
    assert read_flags() == (True, False, {"deadline": shown["drain"]["deadline"]})
    assert shown["drain"]["deadline"].endswith("Z")
    operator("undrain", one)
    assert read_flags() == (False, False, None)


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED_GRACEFULLY"])
def test_a_drained_worker_that_ends_is_answered(operator, worker, state):
    one = worker()
    operator("drain", one)
    operator("maintenance_enter")
    answer = one.beat(state=state)
    assert (answer.status_code, answer.json()["state"]) == (200, state)
    assert one.beat(state=state).status_code == 200


@pytest.mark.parametrize(
    ("options", "seconds"), [({}, 300), ({"deadline_seconds": 60}, 60), ({"deadline_seconds": 0}, 0)]
)
def test_a_drain_lasts_as_long_as_it_was_given_or_the_grace_period(operator, worker, submit, options, seconds):
    submit(), submit()
    one = worker()
    one.hold(), one.hold(running=False)
    shown = operator("drain", one, **options)
    assert (shown["cordoned"], shown["drain"]["held_at_start"]) == (True, 2)
    with connection.cursor() as cursor:
        cursor.execute(
            "select extract(epoch from drain_deadline - clock_timestamp())::float8,"
            " drain_until_observed - observed_now() from liveness_server"
        )
        left = cursor.fetchone()
    assert left == pytest.approx((seconds, seconds), abs=2)


@pytest.mark.parametrize("running", [True, False])
def test_attempts_of_a_drained_server_are_recovered_a_timeout_after_its_deadline(
    operator, worker, submit, clock, running
):
    job = submit()
    one = worker()
    attempt = one.hold(running=running)
    operator("drain", one, deadline_seconds=60)
    clock.advance(102)
    one.beat()
    assert recovery.recover_attempts() == {}
    clock.advance(4)
    one.beat()
    assert recovery.recover_attempts() == {"RESUBMITTED" if running else "REQUEUED": 1}
    job = submit.client.get(f"/jobs/{job['id']}").json()
    assert (job["state"], job["timeline"][-1]["reason"]) == ("PENDING", "drain deadline passed")
    assert one.beat(claimed=[attempt["id"]]).json()["lost"] == [attempt["id"]]
    assert one.complete(attempt)["code"] == "attempt_superseded"
    assert Server.objects.get().state == "RUNNING"


def test_a_drained_server_that_may_not_know_it_is_recovered_only_when_lost(operator, worker, submit, clock):
    submit()
    one = worker()
    one.hold()
    operator("drain", one, deadline_seconds=1)
    clock.advance(47)
    assert recovery.recover_attempts() == {}


def test_running_attempts_stay_with_a_drained_server_whose_strategy_is_never(operator, worker, submit, clock):
    submit(), submit()
    one = worker(config={"worker_task_restart_strategy": "NEVER"})
    running, claimed = one.hold(), one.hold(running=False)
    operator("drain", one, deadline_seconds=0)
    clock.advance(46)
    one.beat()
    assert recovery.recover_attempts() == {"REQUEUED": 1}
    assert Attempt.objects.get(pk=running["id"]).state == "RUNNING"
    assert Attempt.objects.get(pk=claimed["id"]).state == "REQUEUED"


def test_an_undrained_server_keeps_what_it_holds(operator, worker, submit, clock):
    submit()
    one = worker()
    one.hold()
    operator("drain", one, deadline_seconds=0)
    operator("undrain", one)
    clock.advance(1000)
    one.beat()
    assert recovery.recover_attempts() == {}


@pytest.mark.parametrize("name", ["cordon", "drain", "maintenance_enter"])
def test_none_of_it_counts_as_dead(operator, worker, clock, name):
    one = worker()
    operator(name, one)
    for _ in range(5):
        clock.advance(20)
        one.beat()
        check_liveness()
    assert Server.objects.get().state == "RUNNING"


def test_a_claimed_job_of_a_disconnected_server_moves_at_once_a_running_one_later(operator, worker, submit):
    submit(), submit()
    one = worker()
    one.hold(), one.hold(running=False)
    operator("disconnect", one)
    assert recovery.recover_attempts() == {"REQUEUED": 1}


def test_a_disconnect_moves_no_running_job_before_the_worker_has_fenced_itself(operator, worker, submit, clock):
    """The worker's fence starts at its last answered heartbeat; it may not know that it was disconnected."""
    submit()
    one = worker(config={"timeout_seconds": 45, "termination_grace_period_seconds": 100})
    one.hold()
    operator("disconnect", one)
    clock.advance(45 + 100 - 0.1)
    assert recovery.recover_attempts() == {}
    clock.advance(0.2)
    assert recovery.recover_attempts() == {"RESUBMITTED": 1}
