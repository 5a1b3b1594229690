"""Triggers that pause after some FAILED executions in a row."""

import pytest
from django.db import connection

from jobs.models import Trigger
from jobs.services.trigger_tick import run_tick
from liveness.models import ServerEvent
from tests.integration.jobs.test_triggers import at, create, operator, read

__all__ = ["at", "create", "operator", "read"]

pytestmark = pytest.mark.django_db


def end(crew, state):
    """Run the one waiting step, which ends in a state."""
    report = {"attempt": crew.running().hold()["id"], "event": state}
    error = {"error": {"code": "BAD", "message": "no"}} if state == "FAILED" else {}
    assert crew.report(report | error)[0]["accepted"]


@pytest.fixture
def crew(worker):
    return worker()


@pytest.fixture
def run(operator, crew):
    """Return a function that starts an execution of a trigger by hand, and ends it in a state."""

    def run(trigger, state):
        slot = operator.post(f"/triggers/{trigger['id']}/evaluate", {}).json()
        assert slot["outcome"] == "FIRED"
        if state == "CANCELLED":
            operator.post(f"/executions/{slot['execution']}/cancel", {})
        else:
            end(crew, state)
        run_tick()

    return run


def test_a_trigger_pauses_after_some_failures_in_a_row(create, read, run):
    trigger = create(action=None, pause_after_failures=2)
    run(trigger, "FAILED")
    once = read(trigger)
    assert (once["enabled"], once["failures_in_row"]) == (True, 1)
    run(trigger, "FAILED")
    twice = read(trigger)
    assert (twice["enabled"], twice["failures_in_row"], twice["next_slot_at"]) == (False, 2, None)
    event = ServerEvent.objects.get(action="pause_after_failures")
    assert (event.subject_id, event.actor, event.reason) == (trigger["id"], "liveness", "2 executions in a row FAILED")


def test_a_completed_execution_starts_the_count_again(create, read, run):
    trigger = create(action=None, pause_after_failures=2)
    for state in ("FAILED", "COMPLETED", "FAILED"):
        run(trigger, state)
    assert (read(trigger)["enabled"], read(trigger)["failures_in_row"]) == (True, 1)


def test_a_cancelled_execution_does_not_count(create, read, run):
    trigger = create(action=None, pause_after_failures=2)
    for state in ("FAILED", "CANCELLED", "FAILED"):
        run(trigger, state)
    assert read(trigger)["enabled"] is False


def test_failures_without_a_limit_pause_nothing(create, read, run):
    trigger = create(action=None)
    for _ in range(3):
        run(trigger, "FAILED")
    assert (read(trigger)["enabled"], read(trigger)["failures_in_row"]) == (True, 3)


def test_enabling_starts_the_count_again(create, read, run, operator):
    trigger = create(action=None, pause_after_failures=2)
    for _ in range(2):
        run(trigger, "FAILED")
    enabled = operator.call("PATCH", f"/triggers/{trigger['id']}", {"enabled": True}).json()
    assert (enabled["failures_in_row"], enabled["next_slot_at"]) == (0, "2030-06-01T01:00:00Z")
    run(trigger, "FAILED")
    assert read(trigger)["enabled"] is True


def test_an_execution_that_started_before_the_trigger_was_enabled_does_not_count(create, read, operator, crew, clock):
    trigger = create(action=None, pause_after_failures=1)
    operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    clock.advance(1)
    for enabled in (False, True):
        operator.call("PATCH", f"/triggers/{trigger['id']}", {"enabled": enabled})
    end(crew, "FAILED")
    run_tick()
    assert (read(trigger)["enabled"], read(trigger)["failures_in_row"]) == (True, 0)


def test_failures_that_one_tick_finds_together_count_in_the_order_of_their_ends(create, read, operator, crew):
    trigger = create(action=None, pause_after_failures=2)
    for state in ("FAILED", "FAILED", "COMPLETED", "FAILED"):
        operator.post(f"/triggers/{trigger['id']}/evaluate", {})
        end(crew, state)
    run_tick()
    assert (read(trigger)["enabled"], read(trigger)["failures_in_row"]) == (False, 1)
    run_tick()
    assert ServerEvent.objects.filter(action="pause_after_failures").count() == 1


def test_a_deleted_execution_ends_its_slot(create, run, operator):
    trigger = create(action=None, overlap="skip")
    operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    with connection.cursor() as cursor:
        cursor.execute("update jobs_triggerslot set execution_id = uuid7()")
    run_tick()
    slot = Trigger.objects.get().slots.get()
    assert slot.is_running is False


@pytest.mark.parametrize("number", [0, -1, 1.5, "many", 2**31])
def test_a_wrong_number_of_failures_is_refused(create, operator, number):
    trigger = create()
    refused = operator.call("PATCH", f"/triggers/{trigger['id']}", {"pause_after_failures": number})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["pause_after_failures"])
