"""Jobs that use several slots of an agent."""

from types import SimpleNamespace

import pytest

from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.transport import TransportThread
from controlplane.agent.attempt import AttemptStage
from controlplane.agent.attempt_table import AttemptTable


def attempt(id, slots=1):
    return SimpleNamespace(
        id=id, slots=slots, is_accepted=True, is_live=True, stage=AttemptStage.STARTING, final_report=None
    )


def table_with(*attempts, slots=4):
    table = AttemptTable(slots)
    for one in attempts:
        table.add(one)
    return table


def begin_all(table):
    begun = []
    while one := table.take_next():
        table.record_begin(one)
        begun.append(one.id)
    return begun


def test_the_code_of_attempts_uses_no_more_slots_than_the_worker_has():
    table = table_with(attempt("a", 2), attempt("b", 3), attempt("c"))
    assert begin_all(table) == ["a"]
    assert (table.live_slots, table.begun_slots, table.is_full) == (6, 2, False)
    table.record_end(table["a"])
    assert begin_all(table) == ["b", "c"]
    assert table.is_full


def test_attempts_behind_a_large_one_wait_so_that_its_slots_become_free():
    table = table_with(attempt("a"), attempt("b", 4), attempt("c"))
    assert begin_all(table) == ["a"]
    table.record_end(table["a"])
    assert begin_all(table) == ["b"]


def test_an_attempt_that_needs_more_slots_than_there_are_runs_alone():
    table = table_with(attempt("a"), attempt("b", 9))
    assert begin_all(table) == ["a"]
    table.remove(table["a"])
    assert begin_all(table) == ["b"]
    table.remove(table["b"])
    assert table.live_slots == table.begun_slots == 0


def test_attempts_without_free_slots_are_claimed_ahead():
    table = table_with(attempt("a", 3), attempt("b"), attempt("c", 2), attempt("d"))
    assert [one.id for one in table.list_claimed_ahead()] == ["c", "d"]
    assert begin_all(table) == ["a", "b"]
    assert [one.id for one in table.list_claimed_ahead()] == ["c", "d"]


@pytest.mark.parametrize(("slots", "claims"), [(3, [2]), (4, [2, 4])])
def test_it_claims_again_as_soon_as_the_slots_for_a_waiting_job_are_free(slots, claims):
    asked = []

    def post(call, body):
        asked.append(body["limit"])
        return {"attempts": [], "slots_wanted": 4}

    server = SimpleNamespace(post=post, config=SimpleNamespace(timeout=40))
    transport = TransportThread(server, Outbox(), 3600, lambda end: transport.acknowledge_claim(), lambda: None)
    for free in (2, slots, slots):
        transport.request_slots(free)
        transport.send_and_claim()
    assert asked == claims
