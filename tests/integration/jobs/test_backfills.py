"""Backfills: runs of a trigger for past slots."""

import pytest

from jobs.models import Backfill, Execution, TriggerSlot
from jobs.services import backfills
from jobs.services.trigger_tick import run_tick
from liveness.models import ServerEvent
from tests.integration.jobs.test_trigger_failures import end
from tests.integration.jobs.test_triggers import answer, at, create, operator, read

__all__ = ["at", "create", "operator", "read"]

pytestmark = pytest.mark.django_db

MAY = {"from": "2030-05-01T00:00:00Z", "to": "2030-05-01T05:00:00Z"}


@pytest.fixture
def begin(operator):
    """Return a function that begins a backfill of a trigger and returns it."""

    def begin(trigger, **fields):
        answer = operator.post(f"/triggers/{trigger['id']}/backfills", MAY | fields)
        assert answer.status_code == 201, answer.json()
        return answer.json()

    return begin


@pytest.fixture
def look(operator):
    return lambda backfill: operator.get(f"/triggers/{backfill['trigger']}/backfills/{backfill['id']}").json()


def end_all(crew):
    """Run all waiting steps."""
    for attempt in crew.running().claim(limit=100):
        crew.start(attempt)
        crew.complete(attempt)


def fired():
    return TriggerSlot.objects.filter(outcome="FIRED").count()


def test_a_backfill_runs_each_slot_of_its_period_in_order(create, begin, look, worker, operator):
    trigger, crew = create(action=None, enabled=False), worker(max_concurrent=10)
    backfill = begin(trigger, max_running=2)
    assert {name: backfill[name] for name in ("state", "total", "waiting", "running")} == {
        "state": "RUNNING", "total": 5, "waiting": 5, "running": 0,
    }  # fmt: skip
    assert run_tick() == 2
    assert (look(backfill)["waiting"], look(backfill)["running"]) == (3, 2)
    assert run_tick() == 0
    for _ in range(3):
        end_all(crew)
        run_tick()
    ended = look(backfill)
    assert (ended["state"], ended["waiting"], ended["running"]) == ("COMPLETED", 0, 0)
    assert ended["finished_at"] is not None
    slots = [run.inputs["slot"][11:16] for run in Execution.objects.order_by("id")]
    assert slots == ["00:00", "01:00", "02:00", "03:00", "04:00"]


def test_ninety_days_with_five_at_once_are_stopped_in_the_middle(create, begin, look, worker, operator, read):
    trigger, crew = create(action=None, cron="0 2 * * *", timezone="Europe/Zurich"), worker(max_concurrent=10)
    # The clocks change within these days, and each day has one slot.
    period = {"from": "2030-03-01T00:00:00Z", "to": "2030-05-30T00:00:00Z"}
    backfill = begin(trigger, **period, max_running=5)
    assert backfill["total"] == 90
    for done in range(8):
        run_tick()
        now = look(backfill)
        assert (now["running"], now["waiting"]) == (5, 85 - 5 * done)
        if done < 7:
            end_all(crew)
    stopped = operator.post(f"/triggers/{trigger['id']}/backfills/{backfill['id']}/stop", {"note": "enough"})
    assert (stopped.status_code, stopped.json()["state"], stopped.json()["running"]) == (200, "STOPPED", 5)
    end_all(crew)
    assert run_tick() == 0
    assert (fired(), TriggerSlot.objects.filter(outcome="SKIPPED", note="the backfill was stopped").count()) == (40, 50)
    assert set(Execution.objects.values_list("state", flat=True)) == {"COMPLETED"}
    again = begin(trigger, **period, max_running=5)
    assert again["total"] == 50
    assert run_tick() == 5
    actions = ServerEvent.objects.filter(action__contains="backfill").order_by("id").values_list("action", "reason")
    assert list(actions) == [("begin_backfill", ""), ("stop_backfill", "enough"), ("begin_backfill", "")]


def test_a_backfill_leaves_out_slots_that_fired_and_takes_those_that_were_missed(create, begin, read, at):
    trigger = create(action=None)
    at("2030-06-01T03:30:00Z")
    run_tick()
    period = {"from": "2030-06-01T00:00:00Z", "to": "2030-06-01T03:30:00Z"}
    assert begin(trigger, **period)["total"] == 3
    assert run_tick() == 1
    outcomes = [slot["outcome"] for slot in read(trigger)["slots"]]
    assert outcomes == ["FIRED", "QUEUED", "QUEUED", "FIRED"]


def test_the_period_includes_its_first_moment_and_not_its_last(create, begin):
    trigger = create(action=None)
    assert begin(trigger, **{"from": "2030-05-01T01:00:00Z", "to": "2030-05-01T02:00:00Z"})["total"] == 1
    assert begin(trigger, **{"from": "2030-05-02T01:00:00.000001Z", "to": "2030-05-02T02:00:00.000001Z"})["total"] == 1


def test_a_backfill_without_slots_is_completed(create, begin, look):
    backfill = begin(create(action=None), **{"from": "2030-05-01T00:10:00Z", "to": "2030-05-01T00:50:00Z"})
    assert backfill["total"] == 0
    run_tick()
    assert look(backfill)["state"] == "COMPLETED"


def test_slots_of_a_backfill_and_of_the_schedule_do_not_wait_for_each_other(create, begin, read, at):
    trigger = create(action=None, overlap="skip")
    begin(trigger, max_running=2)
    assert run_tick() == 2
    at("2030-06-01T01:00:00Z")
    assert run_tick() == 1
    assert read(trigger)["slots"][0]["outcome"] == "FIRED"


def test_a_new_slot_does_not_cancel_the_executions_of_a_backfill(create, begin, at):
    trigger = create(action=None, overlap="cancel_running")
    begin(trigger)
    for hour in (0, 1, 2):
        at(f"2030-06-01T0{hour}:00:00Z")
        run_tick()
    assert sorted(Execution.objects.values_list("state", flat=True)) == ["CANCELLED", "RUNNING", "RUNNING"]


def test_a_backfill_evaluates_several_slots_at_once(create, begin, look, worker, at, read):
    trigger, crew = create(), worker()
    backfill = begin(trigger, max_running=2)
    assert run_tick() == 2
    answer(crew, {"fire": False})
    assert (look(backfill)["running"], run_tick()) == (1, 1)
    at("2030-06-01T01:00:00Z")
    assert run_tick() == 1
    assert read(trigger)["slots"][0]["outcome"] == "EVALUATING"


def test_failures_of_a_backfill_do_not_pause_the_trigger(create, begin, read, worker):
    trigger, crew = create(action=None, pause_after_failures=1), worker()
    begin(trigger)
    run_tick()
    end(crew, "FAILED")
    assert run_tick() == 1
    assert (read(trigger)["enabled"], read(trigger)["failures_in_row"]) == (True, 0)


def test_a_held_trigger_holds_its_backfills(create, begin, operator):
    trigger = create(action=None)
    begin(trigger)
    hold = operator.post("/holds", {"of": {"trigger": trigger["id"]}}).json()
    assert run_tick() == 0
    operator.call("DELETE", f"/holds/{hold['id']}")
    assert run_tick() == 1


def test_the_same_key_begins_a_backfill_once(create, operator):
    path, key = f"/triggers/{create(action=None)['id']}/backfills", {"Idempotency-Key": "k"}
    first, again = (operator.post(path, MAY, **key) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert Backfill.objects.count() == 1


def test_a_backfill_that_has_ended_cannot_be_stopped(create, begin, operator):
    backfill = begin(create(action=None))
    path = f"/triggers/{backfill['trigger']}/backfills/{backfill['id']}/stop"
    assert operator.post(path, {}).status_code == 200
    refused = operator.post(path, {})
    assert (refused.status_code, refused.json()["code"]) == (409, "backfill_ended")


def test_a_backfill_is_found_only_with_its_trigger(create, begin, operator):
    backfill, other = begin(create(action=None)), create(name="other")
    assert operator.get(f"/triggers/{other['id']}/backfills/{backfill['id']}").status_code == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"from": "2030-05-02T00:00:00Z"}, "from"),
        ({"from": MAY["to"]}, "from"),
        ({"to": "2031-01-01T00:00:00Z"}, "to"),
        ({"from": "yesterday"}, "from"),
        ({"to": None}, "to"),
        ({"max_running": 0}, "max_running"),
        ({"max_running": 101}, "max_running"),
    ],
)
def test_a_period_that_makes_no_sense_is_refused(create, operator, fields, field):
    refused = operator.post(f"/triggers/{create()['id']}/backfills", MAY | fields)
    assert (refused.status_code, list(refused.json()["errors"])) == (400, [field])
    assert not Backfill.objects.exists()


def test_a_period_with_too_many_slots_is_refused(create, operator, monkeypatch):
    monkeypatch.setattr(backfills, "SLOTS_LIMIT", 4)
    refused = operator.post(f"/triggers/{create()['id']}/backfills", MAY)
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["to"])


def test_a_trigger_on_a_signal_has_no_backfills(create, operator):
    trigger = create(cron=None, on_signal="paid")
    refused = operator.post(f"/triggers/{trigger['id']}/backfills", MAY)
    assert (refused.status_code, refused.json()["code"]) == (409, "no_schedule")


def test_only_operators_begin_backfills(create, begin, api):
    backfill = begin(create(action=None))
    path = f"/triggers/{backfill['trigger']}/backfills"
    assert api("viewer").get(f"{path}/{backfill['id']}").status_code == 200
    assert api("viewer").post(path, MAY).status_code == 403
    assert api("client").post(path, MAY).status_code == 403


def test_a_deleted_trigger_takes_its_backfills_along(create, begin, operator):
    trigger = create(action=None)
    begin(trigger)
    run_tick()
    assert operator.call("DELETE", f"/triggers/{trigger['id']}").status_code == 204
    assert not Backfill.objects.exists()
    assert run_tick() == 0
