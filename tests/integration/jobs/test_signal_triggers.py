"""Triggers that start at signals, and the signals that the control plane sends when executions end."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, connection

from jobs.models import Execution, Signal, TriggerSlot
from jobs.services import trigger_tick, waits
from jobs.services.trigger_tick import run_tick
from liveness.services import tokens
from tests.integration.jobs.test_trigger_failures import end
from tests.integration.jobs.test_triggers import TEMPLATE, answer, at, create, operator, read
from tests.support.executions import step
from tests.support.http import Caller

__all__ = ["at", "create", "operator", "read"]

pytestmark = pytest.mark.django_db

WAITS = {"name": "inner", "steps": [step("x")]}


@pytest.fixture
def listen(create):
    """Return a function that creates a trigger on a signal, without an action."""
    return lambda on, **fields: create(**{"action": None, "cron": None, "on_signal": on, **fields})


@pytest.fixture
def send(operator):
    return lambda name, body=None: operator.post(f"/signals/{name}", body)


@pytest.fixture
def crew(worker):
    return worker()


def runs(operator, trigger):
    """Return the inputs of the executions that a trigger has started, the first one first."""
    items = operator.get(f"/executions?trigger={trigger['id']}").json()["items"]
    return [operator.get(f"/executions/{item['id']}").json()["inputs"] for item in reversed(items)]


def slots(trigger):
    """Return the outcomes of the slots of a trigger, the first one first."""
    return [slot["outcome"] for slot in reversed(trigger["slots"])]


def test_each_signal_starts_one_execution_with_its_name_and_its_body(listen, send, operator, read):
    trigger = listen("paid:42")
    assert (trigger["on_signal"], trigger["next_slot_at"]) == ("paid:42", None)
    for amount in (7, 8):
        send("paid:42", {"amount": amount})
    send("paid:43")
    assert run_tick() == 2
    assert run_tick() == 0
    first, second = runs(operator, trigger)
    assert (first["signal"], first["body"], first["trigger"]) == ("paid:42", {"amount": 7}, "hourly")
    assert (first["day"], second["body"]) == ("any", {"amount": 8})
    assert first["slot"] < second["slot"]
    assert [slot["signal"] for slot in read(trigger)["slots"]] == ["paid:42"] * 2


@pytest.mark.parametrize(
    ("on", "name", "starts"),
    [
        ("paid:*", "paid:42", 1),
        ("paid:*", "paid:", 1),
        ("paid:*", "paid", 0),
        ("paid:*", "unpaid:1", 0),
        ("a_:*", "ab:1", 0),
    ],
)
def test_a_trigger_on_a_prefix_starts_at_each_signal_with_it(listen, send, on, name, starts):
    listen(on)
    assert send(name).status_code == 201
    assert run_tick() == starts


@pytest.mark.parametrize("on", ["", "a/b", "*", "paid*", "paid:*:x", "pa*d:*", "x" * 201, 7])
def test_what_is_neither_a_name_nor_a_prefix_is_refused(operator, on):
    refused = operator.post("/triggers", {"name": "t", "on_signal": on, "execution": TEMPLATE})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["on_signal"])


def test_a_trigger_has_exactly_one_of_cron_interval_and_signal(listen, operator):
    path = f"/triggers/{listen('paid')['id']}"
    assert operator.call("PATCH", path, {"cron": "0 * * * *"}).status_code == 400
    assert operator.call("PATCH", path, {"on_signal": None}).status_code == 400
    assert "jitter_seconds" in operator.call("PATCH", path, {"jitter_seconds": 5}).json()["errors"]
    changed = operator.call("PATCH", path, {"on_signal": None, "cron": "0 * * * *"})
    assert changed.json()["next_slot_at"] == "2030-06-01T01:00:00Z"


def test_signals_before_a_trigger_was_enabled_start_nothing(listen, send, operator, clock):
    send("paid")
    clock.advance(1)
    path = f"/triggers/{listen('paid')['id']}"
    assert run_tick() == 0
    operator.call("PATCH", path, {"enabled": False})
    send("paid")
    clock.advance(1)
    operator.call("PATCH", path, {"enabled": True})
    assert run_tick() == 0
    send("paid")
    assert run_tick() == 1


def test_the_start_and_the_end_limit_the_signals(listen, send, at):
    listen("paid", start_at="2030-06-01T01:00:00Z", end_at="2030-06-01T02:00:00Z")
    for time, starts in (("00:59:59", 0), ("01:00:00", 1), ("02:00:00", 1), ("02:00:01", 0)):
        at(f"2030-06-01T{time}Z")
        send("paid")
        assert run_tick() == starts


def test_a_signal_of_another_namespace_starts_nothing(listen):
    listen("paid")
    red = Caller(tokens.create_token("red", "client", namespace="red"))
    assert red.post("/signals/paid", None).status_code == 201
    assert run_tick() == 0


def test_an_evaluation_gets_the_signal_and_its_execution_too(listen, send, operator, crew, create):
    trigger = create(cron=None, on_signal="paid", priority=9)
    for body in ("first", "second"):
        send("paid", body)
    assert run_tick() == 1
    attempt = answer(crew, {"fire": True, "inputs": {"own": 1}})
    assert (attempt["job"]["payload"]["signal"], attempt["job"]["payload"]["body"]) == ("paid", "first")
    assert run_tick() == 1
    answer(crew, {"fire": True})
    first, second = runs(operator, trigger)
    assert first == {"own": 1, "signal": "paid", "body": "first"}
    assert second == {"day": "any", "signal": "paid", "body": "second"}
    assert not TriggerSlot.objects.exclude(body=None).exists()


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("skip", ["FIRED", "SKIPPED", "SKIPPED"]), ("queue_one", ["FIRED", "QUEUED", "SKIPPED"])],
)
def test_the_overlap_decides_about_signals(listen, send, read, overlap, expected):
    trigger = listen("paid", overlap=overlap)
    for _ in range(3):
        send("paid")
        run_tick()
    assert slots(read(trigger)) == expected


def test_the_newest_signal_replaces_the_running_execution(listen, send, read, operator):
    trigger = listen("paid", overlap="cancel_running")
    for body in (1, 2, 3):
        send("paid", body)
    run_tick()
    assert slots(read(trigger)) == ["SKIPPED", "SKIPPED", "FIRED"]
    assert [run["body"] for run in runs(operator, trigger)] == [3]


def test_a_trigger_on_a_signal_pauses_after_failures(listen, send, read, crew):
    trigger = listen("paid", pause_after_failures=1)
    send("paid")
    run_tick()
    end(crew, "FAILED")
    run_tick()
    assert read(trigger)["enabled"] is False
    send("paid")
    assert run_tick() == 0


def test_a_held_trigger_starts_at_its_signals_after_the_hold(listen, send, operator):
    trigger = listen("paid")
    hold = operator.post("/holds", {"of": {"trigger": trigger["id"]}}).json()
    send("paid")
    assert run_tick() == 0
    operator.call("DELETE", f"/holds/{hold['id']}")
    assert run_tick() == 1


def test_an_execution_that_ends_starts_the_next_one(listen, operator, crew, api):
    trigger = listen("ended:extract")
    body = {"name": "extract", "steps": [step("a")], "outputs": {"rows": {"from": "$.steps.a.output"}}}
    first = api("client").post("/executions", body).json()
    run_tick()
    assert runs(operator, trigger) == []
    attempt = crew.running().hold()
    crew.complete(attempt, 7)
    assert run_tick() == 1
    [inputs] = runs(operator, trigger)
    assert inputs["signal"] == "ended:extract"
    assert inputs["body"] == {"id": first["id"], "state": "COMPLETED", "outputs": {"rows": 7}}


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_each_end_of_an_execution_is_a_signal(operator, crew, api, state):
    run = api("client").post("/executions", {"name": "extract", "steps": [step("a")]}).json()
    if state == "CANCELLED":
        operator.post(f"/executions/{run['id']}/cancel", {})
    else:
        end(crew, state)
    sent = Signal.objects.get()
    assert (sent.name, sent.owner, sent.namespace) == ("ended:extract", None, "default")
    assert sent.body == {"id": run["id"], "state": state, "outputs": None}


def test_a_child_of_a_step_sends_no_signal_of_its_own(api, crew):
    child = step("child", action={"type": "execution", **WAITS})
    api("client").post("/executions", {"name": "outer", "steps": [child]})
    end(crew, "COMPLETED")
    assert list(Signal.objects.values_list("name", flat=True)) == ["ended:outer"]


def test_a_step_may_wait_for_the_end_of_another_execution(api, crew, operator):
    client = api("client")
    waiting = client.post(
        "/executions", {"name": "after", "steps": [step("w", action={"type": "wait", "signal": "ended:first"})]}
    ).json()
    client.post("/executions", {"name": "first", "steps": [step("a")]})
    end(crew, "COMPLETED")
    waits.end_waits()
    assert operator.get(f"/executions/{waiting['id']}").json()["state"] == "COMPLETED"


def test_executions_follow_each_other_and_no_trigger_starts_twice_in_one_chain(listen, operator, read, crew, send):
    first = listen("go", name="first", execution={"name": "a", "steps": [step("a")]})
    second = listen("ended:a", name="second", execution={"name": "b", "steps": [step("b")]})
    again = listen("ended:*", name="again", execution={"name": "c", "steps": [step("c")]})
    send("go")
    for _ in range(12):
        run_tick()
        for attempt in crew.running().claim():
            crew.start(attempt)
            crew.complete(attempt)
    # go starts a; its end starts b and c; the end of b starts c. Each end of c would start `again` a second time.
    assert (len(runs(operator, first)), len(runs(operator, second)), len(runs(operator, again))) == (1, 1, 2)
    refused = [slot for slot in read(again)["slots"] if slot["outcome"] == "SKIPPED"]
    assert {slot["note"] for slot in refused} == {"it started before in the same chain of executions"}
    assert len(refused) == 2
    ended = Execution.objects.filter(name="c").earliest("id")
    events = operator.get(f"/executions/{ended.pk}/steps/_server/logs").json()["items"]
    assert [(event["code"], event["line"]) for event in events] == [
        ("TRIGGER_REFUSED", "The trigger again does not start: it started before in the same chain of executions")
    ]


def test_a_new_chain_starts_the_trigger_again(listen, operator, crew, send):
    trigger = listen("ended:a", execution={"name": "b", "steps": [step("b")]})
    first = listen("go", name="first", execution={"name": "a", "steps": [step("a")]})
    for _ in range(2):
        send("go")
        run_tick()
        end(crew, "COMPLETED")
        run_tick()
        end(crew, "COMPLETED")
    assert (len(runs(operator, trigger)), len(runs(operator, first))) == (2, 2)


def test_signals_that_were_routed_start_nothing_again(listen, send):
    listen("paid")
    send("paid")
    run_tick()
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from jobs_signal where not is_routed")
        assert cursor.fetchone() == (0,)
    assert run_tick() == 0


def test_a_body_with_a_strange_id_starts_the_trigger(listen, send):
    listen("paid")
    send("paid", {"id": "not a uuid"})
    assert run_tick() == 1


def test_signals_that_were_committed_late_get_slots_of_their_own(listen, send, operator, read):
    trigger = listen("paid:*")
    first = None
    for number, microseconds in enumerate([500, 0, 100, 500]):
        send(f"paid:{number}")
        signal = Signal.objects.get(name=f"paid:{number}")
        first = first or signal.created_at
        Signal.objects.filter(pk=signal.pk).update(created_at=first + timedelta(microseconds=microseconds))
        if number == 0:
            assert run_tick() == 1
    assert run_tick() == 3
    assert {one["signal"] for one in runs(operator, trigger)} == {f"paid:{number}" for number in range(4)}


def test_a_part_of_the_tick_that_fails_stops_no_other_part(create, operator, monkeypatch):
    def fail():
        raise DatabaseError("a signal that cannot be read")

    monkeypatch.setattr(trigger_tick, "queue_signals", fail)
    trigger = create(action=None)
    period = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T01:00:00Z"}
    backfill = operator.post(f"/triggers/{trigger['id']}/backfills", period).json()
    with pytest.raises(DatabaseError, match="cannot be read"):
        run_tick()
    assert operator.get(f"/triggers/{trigger['id']}/backfills/{backfill['id']}").json()["running"] == 1
