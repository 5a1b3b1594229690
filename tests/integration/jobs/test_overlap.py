"""Slots of a trigger while an earlier execution of it runs."""

from datetime import UTC, datetime, timedelta

import pytest

from jobs.models import Execution, Trigger, TriggerSlot
from jobs.services import liveness_check, retention
from jobs.services.slot_queue import judge_queue
from jobs.services.trigger_tick import run_tick
from jobs.sql.rows.triggers import OpenSlot
from tests.integration.jobs.test_triggers import SCRIPT, answer, at, create, operator, outcomes, read

__all__ = ["at", "create", "operator", "read"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def cancel(operator):
    """Return a function that cancels the execution of a slot of a trigger (0: the latest)."""
    return lambda trigger, place: operator.post(f"/executions/{trigger['slots'][place]['execution']}/cancel", {})


def state_of(slot):
    return Execution.objects.get(pk=slot["execution"]).state


def test_executions_overlap_by_default(create, read, at):
    trigger = create(action=None)
    assert trigger["overlap"] == "allow"
    for hour in (1, 2):
        at(f"2030-06-01T0{hour}:00:00Z")
        assert run_tick() == 1
    assert outcomes(read(trigger)) == [("02:00", "FIRED"), ("01:00", "FIRED")]


def test_a_slot_is_skipped_while_an_execution_runs(create, read, at, cancel):
    trigger = create(action=None, overlap="skip")
    for hour in (1, 2):
        at(f"2030-06-01T0{hour}:00:00Z")
        run_tick()
    now = read(trigger)
    assert outcomes(now) == [("02:00", "SKIPPED"), ("01:00", "FIRED")]
    assert now["slots"][0]["note"] == "an earlier execution had not ended"
    cancel(now, 1)
    assert run_tick() == 0
    at("2030-06-01T03:00:00Z")
    assert run_tick() == 1


def test_the_first_queued_slot_is_kept_and_starts_when_the_execution_has_ended(create, read, at, cancel):
    trigger = create(action=None, overlap="queue_one")
    for hour in (1, 2, 3):
        at(f"2030-06-01T0{hour}:00:00Z")
        run_tick()
    now = read(trigger)
    assert outcomes(now) == [("03:00", "SKIPPED"), ("02:00", "QUEUED"), ("01:00", "FIRED")]
    assert now["slots"][0]["note"] == "another slot was already queued"
    assert run_tick() == 0
    cancel(now, 2)
    assert run_tick() == 1
    assert outcomes(read(trigger)) == [("03:00", "SKIPPED"), ("02:00", "FIRED"), ("01:00", "FIRED")]
    at("2030-06-01T04:00:00Z")
    run_tick()
    assert outcomes(read(trigger))[0] == ("04:00", "QUEUED")


def test_a_running_execution_is_cancelled_and_the_newest_slot_starts_afterwards(create, read, at, worker):
    trigger = create(action=None, overlap="cancel_running")
    crew = worker()
    at("2030-06-01T01:00:00Z")
    run_tick()
    attempt = crew.running().hold()
    for hour in (2, 3):
        at(f"2030-06-01T0{hour}:00:00Z")
        assert run_tick() == 0
    now = read(trigger)
    assert outcomes(now) == [("03:00", "QUEUED"), ("02:00", "SKIPPED"), ("01:00", "FIRED")]
    assert state_of(now["slots"][2]) == "CANCELLING"
    assert now["slots"][1]["note"] == "a later slot replaced it"
    crew.running().report({"attempt": attempt["id"], "event": "CANCELLED"})
    assert state_of(now["slots"][2]) == "CANCELLED"
    error = Execution.objects.get(pk=now["slots"][2]["execution"]).error
    assert error["message"] == "replaced by a later slot of its trigger"
    assert run_tick() == 1
    assert outcomes(read(trigger))[0] == ("03:00", "FIRED")


def test_an_execution_that_only_waits_is_replaced_in_the_same_tick(create, read, at):
    trigger = create(action=None, overlap="cancel_running")
    for hour in (1, 2):
        at(f"2030-06-01T0{hour}:00:00Z")
        assert run_tick() == 1
    now = read(trigger)
    assert outcomes(now) == [("02:00", "FIRED"), ("01:00", "FIRED")]
    assert [state_of(slot) for slot in now["slots"]] == ["RUNNING", "CANCELLED"]


def test_a_queued_slot_starts_when_recovery_has_ended_the_execution(create, read, at, worker, clock):
    steps = [{"key": "a", "action": SCRIPT, "on_worker_lost": "FAIL"}]
    trigger = create(action=None, overlap="queue_one", execution={"name": "report", "steps": steps})
    crew = worker()
    at("2030-06-01T01:00:00Z")
    run_tick()
    crew.running().hold()
    at("2030-06-01T02:00:00Z")
    crew.running()
    run_tick()
    assert outcomes(read(trigger)) == [("02:00", "QUEUED"), ("01:00", "FIRED")]
    for _ in range(2):
        clock.advance(1000)
        liveness_check.check_liveness()
    assert state_of(read(trigger)["slots"][-1]) == "FAILED"
    run_tick()
    assert outcomes(read(trigger))[-2] == ("02:00", "FIRED")


@pytest.mark.parametrize(
    ("overlap", "outcome"),
    [("allow", "FIRED"), ("skip", "SKIPPED"), ("queue_one", "QUEUED"), ("cancel_running", "QUEUED")],
)
def test_a_run_by_hand_obeys_the_overlap(create, read, operator, overlap, outcome):
    trigger = create(action=None, overlap=overlap, enabled=False)
    path = f"/triggers/{trigger['id']}/evaluate"
    assert operator.post(path, {}).json()["outcome"] == "FIRED"
    second = operator.post(path, {})
    assert (second.status_code, second.json()["outcome"]) == (201, outcome)


def test_a_run_by_hand_that_is_queued_starts_although_the_trigger_is_paused(create, read, operator, cancel):
    trigger = create(action=None, overlap="queue_one", enabled=False)
    for _ in range(2):
        operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    cancel(read(trigger), 1)
    assert run_tick() == 1
    assert [slot["outcome"] for slot in read(trigger)["slots"]] == ["FIRED", "FIRED"]


@pytest.mark.parametrize(("overlap", "outcome"), [("skip", "SKIPPED"), ("queue_one", "QUEUED")])
def test_the_overlap_is_judged_before_the_evaluation(create, read, at, worker, overlap, outcome):
    trigger = create(overlap=overlap)
    crew = worker()
    at("2030-06-01T01:00:00Z")
    run_tick()
    answer(crew, {"fire": True})
    at("2030-06-01T02:00:00Z")
    assert run_tick() == 0
    now = read(trigger)
    assert (now["slots"][0]["outcome"], now["slots"][0]["job"]) == (outcome, None)


def test_a_slot_is_skipped_while_an_evaluation_is_in_flight(create, read, at):
    trigger = create(overlap="skip")
    for hour in (1, 2):
        at(f"2030-06-01T0{hour}:00:00Z")
        run_tick()
    assert outcomes(read(trigger)) == [("02:00", "SKIPPED"), ("01:00", "EVALUATING")]


def test_an_evaluation_whose_slot_is_replaced_starts_nothing(create, read, at, worker, operator):
    trigger = create(overlap="cancel_running")
    crew = worker()
    at("2030-06-01T01:00:00Z")
    run_tick()
    attempt = crew.running().hold()
    at("2030-06-01T02:00:00Z")
    run_tick()
    crew.running().complete(attempt, {"fire": True})
    assert outcomes(read(trigger)) == [("02:00", "QUEUED"), ("01:00", "SKIPPED")]
    assert operator.get("/executions").json()["items"] == []
    assert run_tick() == 1


def test_a_hold_keeps_a_queued_slot_until_it_is_released(create, read, at, operator, cancel):
    trigger = create(action=None, overlap="queue_one")
    for hour in (1, 2):
        at(f"2030-06-01T0{hour}:00:00Z")
        run_tick()
    hold = operator.post("/holds", {"of": {"trigger": trigger["id"]}}).json()
    cancel(read(trigger), 1)
    assert run_tick() == 0
    assert operator.call("DELETE", f"/holds/{hold['id']}").status_code == 204
    assert run_tick() == 1


CHANGES = [
    # The clocks go back: half past two comes twice. They go forward: it does not come at all.
    ("2030-10-27", ["23:30", "00:30", "01:30", "02:30"]),
    ("2030-03-31", ["23:30", "00:30", "01:30", "02:30"]),
]


@pytest.mark.parametrize(("day", "slots"), CHANGES)
@pytest.mark.parametrize("overlap", ["skip", "queue_one"])
def test_each_slot_is_judged_once_when_the_clocks_change(create, read, at, cancel, overlap, day, slots):
    before = datetime.fromisoformat(f"{day}T00:00:00Z") - timedelta(minutes=45)
    at(before.isoformat())
    trigger = create(action=None, overlap=overlap, cron="30 * * * *", timezone="Europe/Zurich")
    for minute in range(5, 215, 5):
        at((before + timedelta(minutes=minute)).isoformat())
        run_tick()
        if minute == 140:  # after the slot at 00:30 and 01:30 UTC, between which the clocks change
            first = read(trigger)
            cancel(first, -1)
            run_tick()
    now = read(trigger)
    assert [slot["slot"][11:16] for slot in reversed(now["slots"])] == slots
    waiting = {"skip": ["SKIPPED", "SKIPPED", "FIRED"], "queue_one": ["FIRED", "SKIPPED", "QUEUED"]}[overlap]
    assert [slot["outcome"] for slot in reversed(now["slots"])] == ["FIRED", *waiting]


def open_slots(*rows):
    return [OpenSlot(place, *row) for place, row in enumerate(rows)]


QUEUED, RUNS, EVALUATES, BY_HAND = ("QUEUED", ""), ("FIRED", ""), ("EVALUATING", ""), ("QUEUED", "operator:ann")


@pytest.mark.parametrize(
    ("overlap", "slots", "starts", "skipped"),
    [
        ("allow", [RUNS, EVALUATES, QUEUED, QUEUED], [2, 3], []),
        ("skip", [QUEUED, QUEUED], [0], [1]),
        ("skip", [EVALUATES, QUEUED], [], [1]),
        ("queue_one", [QUEUED, QUEUED, QUEUED], [0], [2]),
        ("queue_one", [RUNS, QUEUED, QUEUED], [], [2]),
        ("cancel_running", [QUEUED, QUEUED], [1], [0]),
        ("cancel_running", [RUNS, QUEUED, QUEUED], [], [1]),
    ],
)
def test_the_overlap_decides_about_each_queued_slot(overlap, slots, starts, skipped):
    trigger = Trigger(overlap=overlap, enabled=True)
    assert judge_queue(trigger, open_slots(*slots)) == (starts, skipped, [])


def test_a_paused_trigger_starts_only_what_was_requested_by_hand():
    trigger = Trigger(overlap="allow", enabled=False)
    assert judge_queue(trigger, open_slots(QUEUED, BY_HAND)) == ([1], [], [0])


def test_retention_keeps_slots_that_wait_or_run(create, settings):
    create(action=None)
    settings.JOBS = {"EXECUTION_RETENTION": 10 * 86400}
    trigger, now = Trigger.objects.get(), datetime.now(UTC)
    for days, outcome, runs in ((100, "QUEUED", False), (90, "FIRED", True), (80, "FIRED", False)):
        TriggerSlot.objects.create(trigger=trigger, slot=now - timedelta(days=days), outcome=outcome, is_running=runs)
    retention.prune_old_rows()
    assert [(slot.outcome, slot.is_running) for slot in trigger.slots.all()] == [("FIRED", True), ("QUEUED", False)]


def test_an_unknown_overlap_is_refused(create, operator):
    trigger = create()
    refused = operator.call("PATCH", f"/triggers/{trigger['id']}", {"overlap": "sometimes"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["overlap"])
