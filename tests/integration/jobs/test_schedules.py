"""Schedules: a start and an end, missed slots, jitter, and executions that start without an evaluation."""

from datetime import datetime

import pytest
from django.db import connection

from jobs.models import Trigger
from jobs.schedules import start_delay
from jobs.services import executions
from jobs.services.trigger_tick import run_tick
from tests.integration.jobs.test_triggers import TEMPLATE, answer, at, create, operator, outcomes, read
from tests.support.executions import SCRIPT

__all__ = ["at", "create", "operator", "read"]

pytestmark = pytest.mark.django_db


def runs(operator):
    return [run["id"] for run in operator.get("/executions").json()["items"]]


def test_a_trigger_without_an_action_starts_its_execution_at_once(create, read, at, operator):
    trigger = create(action=None)
    assert trigger["action"] is None
    at("2030-06-01T01:00:01Z")
    assert run_tick() == 1
    [slot] = read(trigger)["slots"]
    assert (slot["outcome"], slot["job"]) == ("FIRED", None)
    run = operator.get(f"/executions/{slot['execution']}").json()
    assert run["inputs"] == {"day": "any", "trigger": "hourly", "slot": "2030-06-01T01:00:00+00:00"}
    assert run["trigger"] == trigger["id"]
    assert run_tick() == 0


def test_a_trigger_without_an_action_runs_by_hand(create, operator, read):
    trigger = create(action=None, enabled=False)
    slot = operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    assert (slot.status_code, slot.json()["outcome"]) == (201, "FIRED")
    assert runs(operator) == [slot.json()["execution"]]


def test_the_action_of_a_trigger_is_removed_and_given_again(create, operator):
    trigger = create()
    path = f"/triggers/{trigger['id']}"
    assert operator.call("PATCH", path, {"action": None}).json()["action"] is None
    assert operator.call("PATCH", path, {"action": SCRIPT}).json()["action"]["type"] == "script"


def test_an_execution_that_cannot_start_fails_its_slot_and_the_next_slot_starts(create, read, at, monkeypatch):
    trigger = create(action=None)

    def broken(plans):
        with connection.cursor() as cursor:
            cursor.execute("create temporary table half_done ()")
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(executions, "begin_executions", broken)
        at("2030-06-01T01:00:01Z")
        run_tick()
    [slot] = read(trigger)["slots"]
    assert (slot["outcome"], slot["execution"]) == ("FAILED", None)
    assert slot["note"] == "its execution could not begin: RuntimeError: the disk is full"
    assert "half_done" not in connection.introspection.table_names()
    at("2030-06-01T02:00:01Z")
    assert run_tick() == 1


def test_the_first_slot_is_not_before_the_start(create, read, at):
    assert create(name="at it", start_at="2030-06-01T05:00:00Z")["next_slot_at"] == "2030-06-01T05:00:00Z"
    after = create(name="after it", start_at="2030-06-01T05:00:00.000001Z")
    assert after["next_slot_at"] == "2030-06-01T06:00:00Z"
    at("2030-06-01T04:30:00Z")
    assert run_tick() == 0
    assert outcomes(read(after)) == []


def test_the_last_slot_is_not_after_the_end(create, read, at):
    trigger = create(action=None, end_at="2030-06-01T02:00:00Z")
    at("2030-06-01T01:00:00Z")
    run_tick()
    assert read(trigger)["next_slot_at"] == "2030-06-01T02:00:00Z"
    at("2030-06-01T02:00:00Z")
    run_tick()
    at("2030-06-01T09:00:00Z")
    assert run_tick() == 0
    ended = read(trigger)
    assert (ended["next_slot_at"], ended["enabled"]) == (None, True)
    assert outcomes(ended) == [("02:00", "FIRED"), ("01:00", "FIRED")]


def test_a_later_end_continues_the_schedule(create, operator, at):
    trigger = create(end_at="2030-06-01T00:30:00Z")
    assert trigger["next_slot_at"] is None
    changed = operator.call("PATCH", f"/triggers/{trigger['id']}", {"end_at": None}).json()
    assert changed["next_slot_at"] == "2030-06-01T01:00:00Z"


def test_an_end_before_the_start_is_refused(create, operator):
    trigger = create(start_at="2030-06-02T00:00:00Z")
    path = f"/triggers/{trigger['id']}"
    assert operator.call("PATCH", path, {"end_at": "2030-06-02T00:00:00Z"}).status_code == 200
    refused = operator.call("PATCH", path, {"end_at": "2030-06-01T00:00:00Z"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["end_at"])


def test_after_an_outage_every_slot_fires_in_order(create, read, at, operator):
    trigger = create(action=None, missed="fire_all")
    at("2030-06-01T03:30:00Z")
    assert run_tick() == 3
    assert outcomes(read(trigger)) == [("03:00", "FIRED"), ("02:00", "FIRED"), ("01:00", "FIRED")]
    slots = [operator.get(f"/executions/{run}").json()["inputs"]["slot"][11:16] for run in runs(operator)]
    assert slots == ["03:00", "02:00", "01:00"]


@pytest.mark.parametrize(("minutes", "missed"), [(100, 0), (101, 1)])
def test_after_an_outage_at_most_the_last_hundred_slots_fire(create, at, clock, minutes, missed):
    create(action=None, missed="fire_all", cron="* * * * *")
    clock.advance(60 * minutes)
    assert run_tick() == 100
    slots = Trigger.objects.get().slots
    assert (slots.filter(outcome="MISSED").count(), slots.filter(outcome="FIRED").count()) == (missed, 100)


def test_after_an_outage_slots_are_evaluated_one_after_another(create, read, at, worker):
    trigger = create(missed="fire_all")
    crew = worker()
    at("2030-06-01T03:30:00Z")
    assert run_tick() == 1
    assert outcomes(read(trigger)) == [("03:00", "QUEUED"), ("02:00", "QUEUED"), ("01:00", "EVALUATING")]
    assert run_tick() == 0
    answer(crew, {"fire": True})
    assert run_tick() == 1
    assert outcomes(read(trigger)) == [("03:00", "QUEUED"), ("02:00", "EVALUATING"), ("01:00", "FIRED")]


def test_slots_that_wait_for_a_paused_trigger_are_missed(create, read, at, operator, worker):
    trigger = create(missed="fire_all")
    crew = worker()
    at("2030-06-01T02:30:00Z")
    run_tick()
    operator.call("PATCH", f"/triggers/{trigger['id']}", {"enabled": False})
    answer(crew, {"fire": False})
    run_tick()
    assert outcomes(read(trigger)) == [("02:00", "MISSED"), ("01:00", "NOT_FIRED")]
    assert read(trigger)["slots"][0]["note"] == "the trigger was paused"


def test_jitter_delays_the_start_of_a_slot_and_not_its_time(create, read, at, clock):
    trigger = create(action=None, jitter_seconds=1800)
    delay = start_delay(Trigger.objects.get())
    assert 0 <= delay < 1800
    at("2030-06-01T01:00:00Z")
    clock.advance(delay - 0.001)
    assert run_tick() == 0
    clock.advance(0.002)
    assert run_tick() == 1
    assert outcomes(read(trigger)) == [("01:00", "FIRED")]
    assert read(trigger)["next_slot_at"] == "2030-06-01T02:00:00Z"


def test_a_slot_that_jitter_delays_is_not_late(create, read, at, clock):
    trigger = create(action=None, jitter_seconds=3000, missed="skip")
    at("2030-06-01T01:00:59Z")
    clock.advance(start_delay(Trigger.objects.get()))
    assert run_tick() == 1
    assert outcomes(read(trigger)) == [("01:00", "FIRED")]


def test_a_change_does_not_lose_a_slot_that_jitter_delays(create, read, at, operator):
    trigger = create(action=None, jitter_seconds=3000)
    Trigger.objects.update(jitter_seconds=1e9)
    at("2030-06-01T01:00:01Z")
    assert run_tick() == 0
    operator.call("PATCH", f"/triggers/{trigger['id']}", {"priority": 1})
    assert outcomes(read(trigger)) == [("01:00", "FIRED")]


def test_triggers_with_one_schedule_have_different_delays(create):
    for place in range(8):
        create(name=f"t{place}", jitter_seconds=60)
    assert len({start_delay(trigger) for trigger in Trigger.objects.all()}) > 1


def test_the_template_of_a_trigger_may_read_its_slot(create, at, operator):
    steps = [{"key": "a", "action": SCRIPT, "payload": {"day": {"from": "$.inputs.slot"}}}]
    create(action=None, execution={**TEMPLATE, "steps": steps})
    at("2030-06-01T01:00:01Z")
    run_tick()
    [run] = runs(operator)
    [a] = operator.get(f"/executions/{run}").json()["steps"]
    job = operator.get(f"/jobs/{a['job']}").json()
    assert datetime.fromisoformat(job["payload"]["day"]).hour == 1


def test_a_trigger_with_neither_schedule_is_refused(operator):
    refused = operator.post("/triggers", {"name": "t", "execution": TEMPLATE})
    assert refused.status_code == 400
    assert set(refused.json()["errors"]) == {"cron", "interval_seconds", "on_signal"}
