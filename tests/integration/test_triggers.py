"""Triggers: a job for each slot, once; what it answers starts an execution, or not."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from jobs.models import Trigger, TriggerSlot
from jobs.services import check, executions, sweep, triggers
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db

TEMPLATE = {"name": "report", "steps": [step("a")], "inputs": {"day": "any"}}


@pytest.fixture
def operator(api):
    return api("operator")


@pytest.fixture
def at(frozen):
    """Sets the clock to a moment: `at("2026-06-01T00:00:30Z")`."""

    def at(text):
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            now = cursor.fetchone()[0]
        frozen.advance((datetime.fromisoformat(text) - now).total_seconds())

    return at


@pytest.fixture
def create(operator, at):
    at("2030-06-01T00:00:00Z")

    def create(**said):
        body = {"name": "hourly", "action": SCRIPT, "execution": TEMPLATE, **said}
        if "interval_seconds" not in said:
            body.setdefault("cron", "0 * * * *")
        answer = operator.post("/triggers", body)
        assert answer.status_code == 201, answer.json()
        return answer.json()

    return create


@pytest.fixture
def read(operator):
    return lambda trigger: operator.get(f"/triggers/{trigger['id']}").json()


def outcomes(trigger):
    return [(slot["slot"][11:16], slot["outcome"]) for slot in trigger["slots"]]


def answer(worker, output):
    """Do the evaluation that waits, with some output."""
    attempt = worker.running().hold()
    assert attempt["job"]["kind"] == "TRIGGER"
    assert worker.complete(attempt, output)["accepted"]
    return attempt


def test_a_slot_that_has_come_is_evaluated_once_however_many_schedulers_there_are(create, read, at):
    trigger = create()
    at("2030-06-01T00:59:59Z")
    assert triggers.evaluate_due() == 0
    at("2030-06-01T01:00:00Z")
    assert triggers.evaluate_due() == 1
    assert triggers.evaluate_due() == 0
    seen = read(trigger)
    assert outcomes(seen) == [("01:00", "EVALUATING")]
    assert seen["next_slot_at"] == "2030-06-01T02:00:00Z"


def test_an_evaluation_that_says_fire_starts_the_execution_with_its_inputs(create, read, at, worker, operator):
    trigger = create(payload={"own": 1})
    crew = worker()
    at("2030-06-01T01:00:01Z")
    triggers.evaluate_due()
    attempt = answer(crew, {"fire": True, "inputs": {"day": "monday"}})
    assert attempt["job"]["payload"] == {"own": 1, "trigger": "hourly", "slot": "2030-06-01T01:00:00+00:00"}
    [slot] = read(trigger)["slots"]
    assert slot["outcome"] == "FIRED"
    run = operator.get(f"/executions/{slot['execution']}").json()
    assert (run["name"], run["inputs"], run["trigger"]) == ("report", {"day": "monday"}, trigger["id"])
    assert run["steps"][0]["state"] == "PENDING"


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ({"fire": False}, "NOT_FIRED"),
        ({"fire": True}, "FIRED"),
        ({"exit_code": 0, "stdout": '{"fire": true, "inputs": {"day": "monday"}}\n'}, "FIRED"),
        ({"exit_code": 0, "stdout": "fire!"}, "FAILED"),
        ({"fire": "yes"}, "FAILED"),
        ({"fire": True, "inputs": {"large": 1e30}}, "FIRED"),
        ({"fire": True, "inputs": []}, "FAILED"),
        ({"exit_code": 0, "stdout": '{"fire": true, "inputs": {"nul": "\\u0000"}}'}, "FAILED"),
        ({"exit_code": 0, "stdout": '{"fire": true, "inputs": {"deep": ' + "[" * 500 + "]" * 500 + "}}"}, "FAILED"),
        ({}, "FAILED"),
        (None, "FAILED"),
        ([1], "FAILED"),
    ],
)
def test_an_evaluation_is_judged_by_its_output(create, read, at, worker, operator, output, outcome):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:01Z")
    triggers.evaluate_due()
    answer(crew, output)
    [slot] = read(trigger)["slots"]
    assert slot["outcome"] == outcome
    assert len(operator.get("/executions").json()["items"]) == (outcome == "FIRED")


def test_a_trigger_with_a_number_beyond_64_bits_is_evaluated_and_fires(create, read, at, worker):
    template = {"name": "report", "steps": [step("a", payload={"large": 1e30})]}
    trigger = create(payload={"large": 1e30}, execution=template)
    crew = worker()
    at("2030-06-01T01:00:01Z")
    assert triggers.evaluate_due() == 1
    answer(crew, {"fire": True})
    assert outcomes(read(trigger)) == [("01:00", "FIRED")]


def test_an_answer_whose_inputs_are_too_large_for_so_many_steps_is_failed(create, read, at, worker, monkeypatch):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:01Z")
    triggers.evaluate_due()
    monkeypatch.setattr(executions, "HANDED_ON_LIMIT", 20)
    answer(crew, {"fire": True, "inputs": {"text": "x" * 20}})
    assert outcomes(read(trigger)) == [("01:00", "FAILED")]


def test_one_evaluation_is_in_flight_and_the_slots_that_pass_meanwhile_are_missed(create, read, at, worker):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:01Z")
    triggers.evaluate_due()
    at("2030-06-01T03:10:00Z")
    assert triggers.evaluate_due() == 0
    answer(crew, {"fire": False})
    assert triggers.evaluate_due() == 1
    assert outcomes(read(trigger)) == [("03:00", "EVALUATING"), ("02:00", "MISSED"), ("01:00", "NOT_FIRED")]


def test_after_an_outage_the_last_slot_fires_once_and_the_others_are_listed(create, read, at):
    trigger = create()
    at("2030-06-01T04:30:00Z")
    assert triggers.evaluate_due() == 1
    seen = read(trigger)
    assert outcomes(seen) == [
        ("04:00", "EVALUATING"), ("03:00", "MISSED"), ("02:00", "MISSED"), ("01:00", "MISSED"),
    ]  # fmt: skip
    assert seen["next_slot_at"] == "2030-06-01T05:00:00Z"


def test_after_an_outage_a_trigger_that_skips_fires_nothing(create, read, at):
    trigger = create(missed="skip")
    at("2030-06-01T02:30:00Z")
    assert triggers.evaluate_due() == 0
    assert outcomes(read(trigger)) == [("02:00", "MISSED"), ("01:00", "MISSED")]
    at("2030-06-01T03:00:05Z")
    assert triggers.evaluate_due() == 1


@pytest.mark.parametrize(("late", "evaluated"), [(60, 1), (60.1, 0)])
def test_a_slot_is_missed_when_it_is_more_than_a_minute_late(create, at, frozen, late, evaluated):
    create(missed="skip")
    at("2030-06-01T01:00:00Z")
    frozen.advance(late)
    assert triggers.evaluate_due() == evaluated


def test_a_slot_that_comes_again_because_the_clock_was_set_back_is_evaluated_once(create, read, at, worker, operator):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:00Z")
    triggers.evaluate_due()
    answer(crew, {"fire": False})
    at("2030-06-01T00:59:00Z")
    assert operator.call("PATCH", f"/triggers/{trigger['id']}", {"payload": {}}).status_code == 200
    at("2030-06-01T01:00:00Z")
    assert triggers.evaluate_due() == 0
    seen = read(trigger)
    assert outcomes(seen) == [("01:00", "NOT_FIRED")]
    assert seen["next_slot_at"] == "2030-06-01T02:00:00Z"


def test_a_trigger_that_cannot_be_evaluated_delays_no_other(create, read, at, monkeypatch):
    monkeypatch.setattr(triggers, "BATCH", 1)
    create(name="bad")
    Trigger.objects.update(timezone="Gone/Away")  # as after an update of the system's zones
    good = create(name="good", cron="1 1 * * *")
    at("2030-06-01T01:01:00Z")
    assert triggers.evaluate_due() == 1
    assert outcomes(read(good)) == [("01:01", "EVALUATING")]


def test_of_a_long_outage_the_last_missed_slots_are_listed(create, at):
    create(interval_seconds=1)
    at("2031-06-01T00:00:00Z")
    assert triggers.evaluate_due() == 1
    assert TriggerSlot.objects.filter(outcome="MISSED").count() == triggers.LISTED


def test_an_evaluation_lost_with_its_worker_is_done_by_another(create, read, at, worker, frozen):
    trigger = create()
    lost = worker()
    at("2030-06-01T01:00:01Z")
    lost.running()
    triggers.evaluate_due()
    lost.hold()
    for _ in range(2):
        frozen.advance(1000)
        check.check()
    answer(worker(name="other"), {"fire": True})
    assert read(trigger)["slots"][-1]["outcome"] == "FIRED"


def test_an_evaluation_that_ends_without_an_answer_is_failed_and_the_next_slot_is_evaluated(create, read, at, operator):
    trigger = create()
    at("2030-06-01T01:00:01Z")
    triggers.evaluate_due()
    [slot] = read(trigger)["slots"]
    operator.post(f"/jobs/{slot['job']}/cancel", {})
    assert outcomes(read(trigger)) == [("01:00", "FAILED")]
    at("2030-06-01T02:00:01Z")
    assert triggers.evaluate_due() == 1


def test_an_evaluation_that_ended_without_its_consequence_is_followed_up_by_the_sweep(create, read, at, worker):
    trigger = create()
    at("2030-06-01T01:00:01Z")
    triggers.evaluate_due()
    [slot] = read(trigger)["slots"]
    with connection.cursor() as cursor:
        cursor.execute(
            "update jobs_workerjob set state = 'CANCELLED', finished_at = now() where id = %s", [slot["job"]]
        )
    sweep.sweep()
    assert outcomes(read(trigger)) == [("01:00", "FAILED")]


def test_a_trigger_is_evaluated_by_hand_and_not_twice_at_once(create, operator, read):
    trigger = create(enabled=False)
    first = operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    assert first.status_code == 201
    assert first.json()["by"] == "operator:a operator"
    again = operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    assert (again.status_code, again.json()["code"]) == (409, "evaluation_in_flight")
    assert len(read(trigger)["slots"]) == 1


def test_a_trigger_that_is_not_enabled_has_no_slots_until_it_is(create, operator, at):
    trigger = create(enabled=False)
    assert trigger["next_slot_at"] is None
    at("2030-06-01T02:30:00Z")
    assert triggers.evaluate_due() == 0
    changed = operator.call("PATCH", f"/triggers/{trigger['id']}", {"enabled": True}).json()
    assert changed["next_slot_at"] == "2030-06-01T03:00:00Z"


def test_a_trigger_is_changed_and_deleted_and_what_it_started_stays(create, operator, at, worker, read):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:01Z")
    triggers.evaluate_due()
    answer(crew, {"fire": True})
    path = f"/triggers/{trigger['id']}"
    changed = operator.call("PATCH", path, {"cron": None, "interval_seconds": 90})
    assert (changed.status_code, changed.json()["interval_seconds"]) == (200, 90)
    assert operator.call("DELETE", path, {}).status_code == 204
    assert operator.get(path).status_code == 404
    assert operator.get("/executions").json()["items"][0]["trigger"] is None


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"cron": "never"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * *", "interval_seconds": 5}, "interval_seconds"),
        ({"cron": None}, "cron"),
        ({"interval_seconds": 0.5}, "interval_seconds"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "../etc/passwd"}, "timezone"),
        ({"missed": "sometimes"}, "missed"),
        ({"action": {"type": "execution", "name": "x", "steps": [step("a")]}}, "action"),
        ({"execution": {"name": "x", "steps": [step("a", "a")]}}, "execution"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_trigger_that_makes_no_sense_is_refused(operator, said, field):
    body = {"name": "t", "action": SCRIPT, "execution": TEMPLATE, **said}
    if not {"cron", "interval_seconds"} & set(said):
        body["cron"] = "0 * * * *"
    refused = operator.post("/triggers", body)
    assert refused.status_code == 400
    assert field in refused.json()["errors"]
    assert not Trigger.objects.exists()


@pytest.mark.parametrize(
    "template", [{}, {"name": "x"}, {"steps": [step("a")]}, {"name": "x", "steps": [{"key": "a"}]}]
)
def test_the_execution_of_a_trigger_is_changed_as_a_whole(create, operator, read, template):
    before = create()
    answer = operator.call("PATCH", f"/triggers/{before['id']}", {"execution": template})
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["execution"]
    assert read(before) == before


def test_the_execution_of_a_trigger_may_name_times(create, operator, at, worker, read):
    late = {"name": "x", "steps": [step("a", available_at="2030-06-01T05:00:00Z", good_until="2030-06-02T05:00:00Z")]}
    trigger = create(execution=late)
    crew = worker()
    at("2030-06-01T01:00:01Z")
    triggers.evaluate_due()
    answer(crew, {"fire": True})
    [slot] = read(trigger)["slots"]
    [a] = operator.get(f"/executions/{slot['execution']}").json()["steps"]
    assert a["available_at"] == "2030-06-01T05:00:00Z"


def test_a_name_is_taken_once(create, operator):
    create()
    answer = operator.post(
        "/triggers", {"name": "hourly", "cron": "* * * * *", "action": SCRIPT, "execution": TEMPLATE}
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "name_conflict")


def test_triggers_are_an_operators(create, api):
    trigger = create()
    assert api("viewer").get("/triggers").status_code == 200
    assert api("viewer").post(f"/triggers/{trigger['id']}/evaluate", {}).status_code == 403
    for role in ("client", "worker"):
        assert api(role).get("/triggers").status_code == 403


def local(trigger, start, count):
    found = triggers.slots(trigger, datetime.fromisoformat(start))
    return [next(found).astimezone(UTC).isoformat()[5:16] for _ in range(count)]


def test_on_the_day_the_clocks_go_forward_a_slot_in_the_gap_comes_once():
    nightly = Trigger(cron="30 2 * * *", timezone="Europe/Zurich")
    assert local(nightly, "2026-03-28T12:00:00+00:00", 2) == ["03-29T01:00", "03-30T00:30"]


def test_on_the_day_the_clocks_go_back_a_daily_slot_comes_once_and_an_hourly_one_every_hour():
    nightly = Trigger(cron="30 2 * * *", timezone="Europe/Zurich")
    assert local(nightly, "2026-10-24T12:00:00+00:00", 2) == ["10-25T00:30", "10-26T01:30"]
    hourly = Trigger(cron="0 * * * *", timezone="Europe/Zurich")
    assert local(hourly, "2026-10-24T23:30:00+00:00", 4) == ["10-25T00:00", "10-25T01:00", "10-25T02:00", "10-25T03:00"]


def test_the_slots_of_an_interval_are_counted_from_the_creation():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    trigger = Trigger(interval_seconds=40, created_at=start)
    found = triggers.slots(trigger, start + timedelta(seconds=80))
    assert [(next(found) - start).total_seconds() for _ in range(2)] == [120, 160]
