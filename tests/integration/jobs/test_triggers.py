"""Triggers: one job for each slot, whose answer may start an execution."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from django.db import DataError, connection

from jobs import schedules
from jobs.models import Trigger, TriggerSlot
from jobs.services import evaluations, execution_rows, executions, liveness_check, sweep
from liveness.models import ServerEvent
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db

TEMPLATE = {"name": "report", "steps": [step("a")], "inputs": {"day": "any"}}


@pytest.fixture
def operator(api):
    return api("operator")


@pytest.fixture
def at(clock):
    """Return a function that sets the clock: `at("2026-06-01T00:00:30Z")`."""

    def at(text):
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            now = cursor.fetchone()[0]
        clock.advance((datetime.fromisoformat(text) - now).total_seconds())

    return at


@pytest.fixture
def create(operator, at):
    at("2030-06-01T00:00:00Z")

    def create(**fields):
        body = {"name": "hourly", "action": SCRIPT, "execution": TEMPLATE, **fields}
        if "interval_seconds" not in fields:
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
    """Complete the waiting evaluation with an output."""
    attempt = worker.running().hold()
    assert attempt["job"]["kind"] == "TRIGGER"
    assert worker.complete(attempt, output)["accepted"]
    return attempt


def test_a_slot_that_has_come_is_evaluated_once_however_many_schedulers_there_are(create, read, at):
    trigger = create()
    at("2030-06-01T00:59:59Z")
    assert evaluations.evaluate_due_triggers() == 0
    at("2030-06-01T01:00:00Z")
    assert evaluations.evaluate_due_triggers() == 1
    assert evaluations.evaluate_due_triggers() == 0
    trigger_now = read(trigger)
    assert outcomes(trigger_now) == [("01:00", "EVALUATING")]
    assert trigger_now["next_slot_at"] == "2030-06-01T02:00:00Z"


def test_an_evaluation_that_fires_starts_the_execution_with_its_inputs(create, read, at, worker, operator):
    trigger = create(payload={"own": 1})
    crew = worker()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
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
    evaluations.evaluate_due_triggers()
    answer(crew, output)
    [slot] = read(trigger)["slots"]
    assert slot["outcome"] == outcome
    assert len(operator.get("/executions").json()["items"]) == (outcome == "FIRED")


def test_a_trigger_with_a_number_beyond_64_bits_is_evaluated_and_fires(create, read, at, worker):
    template = {"name": "report", "steps": [step("a", payload={"large": 1e30})]}
    trigger = create(payload={"large": 1e30}, execution=template)
    crew = worker()
    at("2030-06-01T01:00:01Z")
    assert evaluations.evaluate_due_triggers() == 1
    answer(crew, {"fire": True})
    assert outcomes(read(trigger)) == [("01:00", "FIRED")]


def test_an_answer_whose_inputs_are_too_large_for_so_many_steps_is_failed(create, read, at, worker, monkeypatch):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    monkeypatch.setattr(execution_rows, "PAYLOAD_BYTES_LIMIT", 20)
    answer(crew, {"fire": True, "inputs": {"text": "x" * 20}})
    assert outcomes(read(trigger)) == [("01:00", "FAILED")]


def test_one_evaluation_is_in_flight_and_slots_during_it_are_missed(create, read, at, worker):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    attempt = crew.running().hold()
    at("2030-06-01T03:10:00Z")
    for _ in range(2):
        assert evaluations.evaluate_due_triggers() == 0
        trigger_now = read(trigger)
        assert outcomes(trigger_now) == [("03:00", "MISSED"), ("02:00", "MISSED"), ("01:00", "EVALUATING")]
        assert [slot["note"] for slot in trigger_now["slots"]] == ["an evaluation was in flight"] * 2 + [""]
    crew.complete(attempt, {"fire": False})
    assert evaluations.evaluate_due_triggers() == 1
    trigger_now = read(trigger)
    assert outcomes(trigger_now) == [("03:00", "EVALUATING"), ("02:00", "MISSED"), ("01:00", "NOT_FIRED")]
    assert trigger_now["next_slot_at"] == "2030-06-01T04:00:00Z"


def test_a_slot_during_an_evaluation_stays_missed_if_the_trigger_skips_it(create, read, at, worker):
    trigger = create(missed="skip")
    crew = worker()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    attempt = crew.running().hold()
    at("2030-06-01T02:10:00Z")
    evaluations.evaluate_due_triggers()
    crew.complete(attempt, {"fire": False})
    assert evaluations.evaluate_due_triggers() == 0
    trigger_now = read(trigger)
    assert outcomes(trigger_now) == [("02:00", "MISSED"), ("01:00", "NOT_FIRED")]
    assert trigger_now["next_slot_at"] == "2030-06-01T03:00:00Z"


def test_many_triggers_in_flight_do_not_keep_the_scheduler(create, read, at, monkeypatch):
    monkeypatch.setattr(evaluations, "BATCH", 1)
    for name in ("a", "b"):
        create(name=name)
    at("2030-06-01T01:00:01Z")
    assert evaluations.evaluate_due_triggers() == 2
    at("2030-06-01T02:00:01Z")
    assert evaluations.evaluate_due_triggers() == 0


CHILD = step("child", action={"type": "execution", "name": "inner", "steps": [step("x"), step("y")]})


def test_the_execution_of_a_trigger_may_begin_with_steps_that_are_executions(create, read, at, worker, operator):
    trigger = create(execution={"name": "outer", "steps": [CHILD, {**CHILD, "key": "other"}, step("a")]})
    crew = worker()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    answer(crew, {"fire": True})
    [slot] = read(trigger)["slots"]
    assert slot["outcome"] == "FIRED"
    run = operator.get(f"/executions/{slot['execution']}").json()
    assert (run["name"], [step["state"] for step in run["steps"]]) == ("outer", ["RUNNING", "RUNNING", "PENDING"])


@pytest.mark.parametrize("error", [RuntimeError("the disk\0 is full"), DataError("a value is out of range")])
def test_an_execution_that_cannot_begin_fails_its_slot_and_not_the_workers_report(
    create, read, at, worker, monkeypatch, error
):
    trigger = create()
    crew = worker()

    def broken(plans):
        with connection.cursor() as cursor:
            cursor.execute("create temporary table half_done ()")
        raise error

    monkeypatch.setattr(executions, "begin_executions", broken)
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    answer(crew, {"fire": True})
    [slot] = read(trigger)["slots"]
    assert (slot["outcome"], slot["execution"]) == ("FAILED", None)
    why = str(error).replace("\0", "")
    assert slot["note"] == f"its execution could not begin: {type(error).__name__}: {why}"
    assert "half_done" not in connection.introspection.table_names()
    at("2030-06-01T02:00:01Z")
    assert evaluations.evaluate_due_triggers() == 1


def test_an_evaluation_has_the_timeout_the_retries_and_the_priority_of_its_trigger(create, operator, read, at):
    plain = create()
    assert (plain["timeout_seconds"], plain["max_retries"], plain["priority"]) == (300, 1, 0)
    own = create(name="own", timeout_seconds=20, max_retries=3, priority=7)
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    job = operator.get(f"/jobs/{read(own)['slots'][0]['job']}").json()
    assert (job["timeout_seconds"], job["max_retries"], job["priority"]) == (20, 3, 7)


def test_an_evaluation_that_hangs_ends_after_its_tries_and_the_next_one_runs(create, read, at, worker, clock):
    trigger = create(timeout_seconds=20, max_retries=1)
    crew = worker()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    for _ in range(2):
        crew.running().hold()
        clock.advance(100)  # its agent should have ended it long before
        crew.running()
        sweep.run_sweep()
        crew.obey()
        clock.advance(10)  # the delay between two tries
    [slot] = read(trigger)["slots"]
    assert (slot["outcome"], slot["note"]) == ("FAILED", "its job ended FAILED: exceeded its timeout of 20 s")
    at("2030-06-01T02:00:01Z")
    assert evaluations.evaluate_due_triggers() == 1


def test_an_evaluation_that_nobody_takes_up_gives_way_to_the_next_slot(create, read, at, settings):
    settings.JOBS = {"UNMATCHED_AFTER": None}
    trigger = create(tags=["nobody-has-this"])
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    at("2030-06-01T01:59:59Z")
    sweep.run_sweep()
    assert outcomes(read(trigger)) == [("01:00", "EVALUATING")]
    at("2030-06-01T02:00:01Z")
    sweep.run_sweep()
    assert evaluations.evaluate_due_triggers() == 1
    assert outcomes(read(trigger)) == [("02:00", "EVALUATING"), ("01:00", "FAILED")]


def test_a_slot_that_has_come_is_evaluated_before_its_trigger_is_changed(create, read, at, operator):
    trigger = create()
    at("2030-06-01T02:00:30Z")
    assert operator.call("PATCH", f"/triggers/{trigger['id']}", {"cron": "30 * * * *"}).status_code == 200
    trigger_now = read(trigger)
    assert outcomes(trigger_now) == [("02:00", "EVALUATING"), ("01:00", "MISSED")]
    assert trigger_now["next_slot_at"] == "2030-06-01T02:30:00Z"


def test_a_trigger_that_cannot_be_evaluated_can_be_changed(create, read, at, operator):
    trigger = create()
    Trigger.objects.update(timezone="Gone/Away")
    at("2030-06-01T02:00:30Z")
    assert operator.call("PATCH", f"/triggers/{trigger['id']}", {"timezone": "UTC"}).status_code == 200
    assert read(trigger)["next_slot_at"] == "2030-06-01T03:00:00Z"


def test_after_an_outage_the_last_slot_fires_once_and_the_others_are_listed(create, read, at):
    trigger = create()
    at("2030-06-01T04:30:00Z")
    assert evaluations.evaluate_due_triggers() == 1
    trigger_now = read(trigger)
    assert outcomes(trigger_now) == [
        ("04:00", "EVALUATING"), ("03:00", "MISSED"), ("02:00", "MISSED"), ("01:00", "MISSED"),
    ]  # fmt: skip
    assert trigger_now["next_slot_at"] == "2030-06-01T05:00:00Z"


def test_after_an_outage_a_trigger_that_skips_fires_nothing(create, read, at):
    trigger = create(missed="skip")
    at("2030-06-01T02:30:00Z")
    assert evaluations.evaluate_due_triggers() == 0
    assert outcomes(read(trigger)) == [("02:00", "MISSED"), ("01:00", "MISSED")]
    at("2030-06-01T03:00:05Z")
    assert evaluations.evaluate_due_triggers() == 1


@pytest.mark.parametrize(("late", "evaluated"), [(60, 1), (60.1, 0)])
def test_a_slot_is_missed_when_it_is_more_than_a_minute_late(create, at, clock, late, evaluated):
    create(missed="skip")
    at("2030-06-01T01:00:00Z")
    clock.advance(late)
    assert evaluations.evaluate_due_triggers() == evaluated


def test_a_slot_that_comes_again_because_the_clock_was_set_back_is_evaluated_once(create, read, at, worker, operator):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:00Z")
    evaluations.evaluate_due_triggers()
    answer(crew, {"fire": False})
    at("2030-06-01T00:59:00Z")
    assert operator.call("PATCH", f"/triggers/{trigger['id']}", {"payload": {}}).status_code == 200
    at("2030-06-01T01:00:00Z")
    assert evaluations.evaluate_due_triggers() == 0
    trigger_now = read(trigger)
    assert outcomes(trigger_now) == [("01:00", "NOT_FIRED")]
    assert trigger_now["next_slot_at"] == "2030-06-01T02:00:00Z"


def test_a_trigger_that_cannot_be_evaluated_delays_no_other(create, read, at, monkeypatch):
    monkeypatch.setattr(evaluations, "BATCH", 1)
    create(name="bad")
    Trigger.objects.update(timezone="Gone/Away")  # as after an update of the system's time zones
    good = create(name="good", cron="1 1 * * *")
    at("2030-06-01T01:01:00Z")
    assert evaluations.evaluate_due_triggers() == 1
    assert outcomes(read(good)) == [("01:01", "EVALUATING")]


def test_of_a_long_outage_the_last_missed_slots_are_listed(create, at):
    create(interval_seconds=1)
    at("2031-06-01T00:00:00Z")
    assert evaluations.evaluate_due_triggers() == 1
    assert TriggerSlot.objects.filter(outcome="MISSED").count() == evaluations.LISTED_SLOTS


def test_an_evaluation_lost_with_its_worker_is_done_by_another(create, read, at, worker, clock):
    trigger = create()
    lost = worker()
    at("2030-06-01T01:00:01Z")
    lost.running()
    evaluations.evaluate_due_triggers()
    lost.hold()
    for _ in range(2):
        clock.advance(1000)
        liveness_check.check_liveness()
    answer(worker(name="other"), {"fire": True})
    assert read(trigger)["slots"][-1]["outcome"] == "FIRED"


def test_an_evaluation_without_an_answer_fails_and_the_next_slot_is_evaluated(create, read, at, operator):
    trigger = create()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    [slot] = read(trigger)["slots"]
    operator.post(f"/jobs/{slot['job']}/cancel", {})
    assert outcomes(read(trigger)) == [("01:00", "FAILED")]
    at("2030-06-01T02:00:01Z")
    assert evaluations.evaluate_due_triggers() == 1


def test_the_sweep_follows_up_an_evaluation_that_had_no_consequence(create, read, at, worker):
    trigger = create()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    [slot] = read(trigger)["slots"]
    with connection.cursor() as cursor:
        cursor.execute(
            "update jobs_workerjob set state = 'CANCELLED', finished_at = now() where id = %s", [slot["job"]]
        )
    sweep.run_sweep()
    assert outcomes(read(trigger)) == [("01:00", "FAILED")]


def test_a_trigger_is_evaluated_by_hand_and_not_twice_at_once(create, operator, read):
    trigger = create(enabled=False)
    first = operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    assert first.status_code == 201
    assert first.json()["by"] == "operator:a operator"
    again = operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    assert (again.status_code, again.json()["code"]) == (409, "evaluation_in_flight")
    assert len(read(trigger)["slots"]) == 1


def test_with_a_key_a_trigger_is_evaluated_by_hand_once(create, operator, read, worker):
    trigger = create(enabled=False)
    crew, path, key = worker(), f"/triggers/{trigger['id']}/evaluate", {"Idempotency-Key": "mine"}
    first = operator.post(path, {}, **key)
    answer(crew, {"fire": True})
    again = operator.post(path, {}, **key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (again.json()["job"], again.json()["outcome"]) == (first.json()["job"], "FIRED")
    assert len(operator.get("/executions").json()["items"]) == 1
    assert operator.post(path, {}, **{"Idempotency-Key": "other"}).status_code == 201
    assert operator.post(path, {}, **{"Idempotency-Key": ""}).status_code == 400


def test_with_a_key_what_a_trigger_started_is_run_again_once(create, operator, worker, at):
    create()
    crew = worker()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    answer(crew, {"fire": True})
    [run] = operator.get("/executions").json()["items"]
    operator.post(f"/executions/{run['id']}/cancel", {})
    path, key = f"/executions/{run['id']}/rerun", {"Idempotency-Key": "mine"}
    answers = [operator.post(path, {}, **key) for _ in range(2)]
    assert [one.status_code for one in answers] == [201, 200]
    assert len({one.json()["id"] for one in answers}) == 1


def test_a_trigger_that_is_not_enabled_has_no_slots_until_it_is(create, operator, at):
    trigger = create(enabled=False)
    assert trigger["next_slot_at"] is None
    at("2030-06-01T02:30:00Z")
    assert evaluations.evaluate_due_triggers() == 0
    changed = operator.call("PATCH", f"/triggers/{trigger['id']}", {"enabled": True}).json()
    assert changed["next_slot_at"] == "2030-06-01T03:00:00Z"


def test_a_trigger_is_changed_and_deleted_and_what_it_started_stays(create, operator, at, worker, read):
    trigger = create()
    crew = worker()
    at("2030-06-01T01:00:01Z")
    evaluations.evaluate_due_triggers()
    answer(crew, {"fire": True})
    path = f"/triggers/{trigger['id']}"
    changed = operator.call("PATCH", path, {"cron": None, "interval_seconds": 90})
    assert (changed.status_code, changed.json()["interval_seconds"]) == (200, 90)
    assert operator.call("DELETE", path, {}).status_code == 204
    assert operator.get(path).status_code == 404
    assert operator.get("/executions").json()["items"][0]["trigger"] is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "never"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * *", "interval_seconds": 5}, "interval_seconds"),
        ({"cron": None}, "cron"),
        ({"interval_seconds": 0.5}, "interval_seconds"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "../etc/passwd"}, "timezone"),
        ({"missed": "sometimes"}, "missed"),
        ({"timeout_seconds": None}, "timeout_seconds"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"max_retries": -1}, "max_retries"),
        ({"priority": 2**31}, "priority"),
        ({"action": {"type": "execution", "name": "x", "steps": [step("a")]}}, "action"),
        ({"execution": {"name": "x", "steps": [step("a", "a")]}}, "execution"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_trigger_that_makes_no_sense_is_refused(operator, fields, field):
    body = {"name": "t", "action": SCRIPT, "execution": TEMPLATE, **fields}
    if not {"cron", "interval_seconds"} & set(fields):
        body["cron"] = "0 * * * *"
    refused = operator.post("/triggers", body)
    assert refused.status_code == 400
    assert field in refused.json()["errors"]
    assert not Trigger.objects.exists()


def test_a_change_of_a_trigger_that_changes_nothing_is_no_event(create, operator):
    trigger = create()
    events = ServerEvent.objects.filter(action="change_trigger")
    for changes in ({"enabled": True}, {"timezone": trigger["timezone"]}, {}):
        assert operator.call("PATCH", f"/triggers/{trigger['id']}", changes).status_code == 200
    assert not events.exists()
    assert operator.call("PATCH", f"/triggers/{trigger['id']}", {"enabled": False}).status_code == 200
    assert events.count() == 1


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
    evaluations.evaluate_due_triggers()
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
    slots = schedules.schedule_slots(trigger, datetime.fromisoformat(start))
    return [next(slots).astimezone(UTC).isoformat()[5:16] for _ in range(count)]


def test_on_the_day_the_clocks_go_forward_a_slot_in_the_gap_comes_once():
    nightly = Trigger(cron="30 2 * * *", timezone="Europe/Zurich")
    assert local(nightly, "2026-03-28T12:00:00+00:00", 2) == ["03-29T01:00", "03-30T00:30"]


def test_when_clocks_go_back_a_daily_slot_comes_once_and_hourly_ones_each_hour():
    nightly = Trigger(cron="30 2 * * *", timezone="Europe/Zurich")
    assert local(nightly, "2026-10-24T12:00:00+00:00", 2) == ["10-25T00:30", "10-26T01:30"]
    hourly = Trigger(cron="0 * * * *", timezone="Europe/Zurich")
    assert local(hourly, "2026-10-24T23:30:00+00:00", 4) == ["10-25T00:00", "10-25T01:00", "10-25T02:00", "10-25T03:00"]


@pytest.mark.parametrize("step", [1, 50, 150])
def test_every_slot_of_the_hour_that_comes_twice_is_evaluated_or_listed_once(create, read, at, worker, step):
    at("2030-10-26T23:10:00Z")
    trigger = create(cron="30 * * * *", timezone="Europe/Zurich")
    crew = worker()
    for minute in range(step, 151, step):
        at((datetime(2030, 10, 26, 23, 10, tzinfo=UTC) + timedelta(minutes=minute)).isoformat())
        if evaluations.evaluate_due_triggers():
            answer(crew, {"fire": False})
    assert [slot[0] for slot in outcomes(read(trigger))] == ["01:30", "00:30", "23:30"]


ZONES = (
    "Africa/Cairo", "Africa/Casablanca", "America/Havana", "America/New_York", "America/Santiago", "America/St_Johns",
    "Antarctica/Troll", "Asia/Beirut", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Dublin", "Europe/Zurich",
    "Pacific/Chatham", "UTC",
)  # fmt: skip
BETWEEN_HOURS = ("Australia/Lord_Howe", "Pacific/Chatham")
"""Zones whose clocks change by half an hour, or at a quarter to. cronsim may skip a slot that begins just then."""
CRONS = ("*/15 * * * *", "30 * * * *", "30 2 * * *", "0,40 0-3 * * *", "*/20 0,23 * * *", "5 */2 * * *")


def changes_of_the_clocks(zone, year):
    hour = datetime(year, 1, 1, tzinfo=UTC)
    while hour.year == year:
        following = hour + timedelta(hours=1)
        if hour.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            yield following
        hour = following


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ZONES)
def test_the_slots_of_a_year_are_in_order_and_the_same_wherever_one_begins_to_look(name):
    zone = ZoneInfo(name)
    changes, day = changes_of_the_clocks(zone, 2030), timedelta(hours=30)
    spans = [(change - day, change + day) for change in changes]
    for cron in CRONS:
        trigger = Trigger(cron=cron, timezone=name)
        for start, end in spans or [(datetime(2030, 6, 1, tzinfo=UTC), datetime(2030, 6, 3, 12, tzinfo=UTC))]:
            whole = list(takewhile(end.__ge__, schedules.schedule_slots(trigger, start)))
            named = list(takewhile(end.__ge__, map(in_utc, CronSim(cron, start.astimezone(zone)))))
            assert whole == named
            assert all(one < other for one, other in pairwise([start, *whole]))
            # Any moment may be the first one: of a due trigger, or of a trigger that is made or changed then.
            moments = [start + timedelta(minutes=10 * n) for n in range(60 * 6)] if name not in BETWEEN_HOURS else []
            for moment in [*whole[:-1], *moments]:
                following = next(schedules.schedule_slots(trigger, moment))
                assert following == next(slot for slot in [*whole, following] if slot > moment), (cron, moment)
            if cron in ("*/15 * * * *", "30 * * * *") and moments:  # by the local clock, also when it changes
                minutes = {0, 15, 30, 45} if "/" in cron else {30}
                every = [start + timedelta(minutes=n) for n in range(1, 60 * 60 + 1)]
                assert whole == [one for one in every if one.astimezone(zone).minute in minutes]


def in_utc(slot):
    return slot.astimezone(UTC)


def test_the_slots_of_an_interval_are_counted_from_the_creation():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    trigger = Trigger(interval_seconds=40, created_at=start)
    slots = schedules.schedule_slots(trigger, start + timedelta(seconds=80))
    assert [(next(slots) - start).total_seconds() for _ in range(2)] == [120, 160]
