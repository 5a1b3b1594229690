"""Tables of states match the specification exactly."""

import itertools

import pytest

from jobs import states as jobs
from jobs.states import AttemptState, JobState
from liveness import states
from liveness.states import Mover, ServerState, ServerType

SERVERS = """
CREATED RUNNING:S TERMINATING:S ERROR:S DISCONNECTED:CO
RUNNING MAINTENANCE:S TERMINATING:S ERROR:S DISCONNECTED:CO
MAINTENANCE RUNNING:S TERMINATING:S ERROR:S DISCONNECTED:CO
ERROR TERMINATING:S NOT_RUNNING:C
DISCONNECTED TERMINATING:S NOT_RUNNING:SC
TERMINATING TERMINATED_GRACEFULLY:S TERMINATED_FORCED:S NOT_RUNNING:C
TERMINATED_GRACEFULLY NOT_RUNNING:C
TERMINATED_FORCED NOT_RUNNING:C
NOT_RUNNING INACTIVE:C
INACTIVE
"""
MOVERS = {"S": Mover.SERVER, "C": Mover.LIVENESS, "O": Mover.OPERATOR}


def reachable(table, start):
    reached, to_visit = set(), [start]
    while to_visit:
        for onward in table[to_visit.pop()]:
            if onward not in reached:
                reached.add(onward)
                to_visit.append(onward)
    return reached


def test_servers_move_as_specified():
    specified = {}
    for line in SERVERS.strip().splitlines():
        from_, *moves = line.split()
        specified[from_] = {to: {MOVERS[who] for who in by} for to, by in (move.split(":") for move in moves)}
    assert specified == states.TRANSITIONS


@pytest.mark.parametrize("state", sorted(set(ServerState) - states.ALIVE))
def test_nothing_leads_back_to_alive(state):
    assert not reachable(states.TRANSITIONS, state) & states.ALIVE


@pytest.mark.parametrize("state", sorted(ServerState))
def test_every_server_ends_inactive_and_begins_created(state):
    assert state == "INACTIVE" or "INACTIVE" in reachable(states.TRANSITIONS, state)
    assert "CREATED" not in reachable(states.TRANSITIONS, state)


def test_the_groups_of_states_are_those_of_the_specification():
    assert states.INITIAL == "CREATED"
    assert {"CREATED", "RUNNING", "MAINTENANCE"} == states.ALIVE
    assert {"TERMINATED_GRACEFULLY", "TERMINATED_FORCED"} == states.TERMINATED
    assert {"NOT_RUNNING", "INACTIVE"} == states.RETIRED
    assert set(ServerType) == {"WORKER", "EXECUTOR", "SCHEDULER", "WEBSERVER", "INDEXER"}


def test_a_server_may_report_only_states_that_the_table_marks_as_its_own():
    assert states.server_reported_states() == {
        "RUNNING", "MAINTENANCE", "ERROR", "TERMINATING", "TERMINATED_GRACEFULLY", "TERMINATED_FORCED",
    }  # fmt: skip


def test_a_transition_is_legal_for_the_movers_in_the_table():
    for from_, to in itertools.product(ServerState, repeat=2):
        movers = {mover for mover in Mover if states.is_legal_transition(from_, to, mover)}
        assert movers == states.TRANSITIONS[from_].get(to, set()), (from_, to)
        assert ((from_, to) in states.legal_transitions()) == bool(movers), (from_, to)


def test_jobs_that_have_ended_never_move_again():
    assert {"COMPLETED", "FAILED", "CANCELLED"} <= jobs.TERMINAL
    assert not jobs.TERMINAL & {"PENDING", "CLAIMED", "RUNNING"}
    assert all(not jobs.JOB_TRANSITIONS[state] for state in jobs.TERMINAL)


@pytest.mark.parametrize(
    ("from_", "to"),
    [
        ("CLAIMED", {"RUNNING", "PENDING", "FAILED", "CANCELLED"}),
        ("RUNNING", {"COMPLETED", "FAILED", "CANCELLED", "PENDING", "SKIPPED"}),
    ],
)
def test_jobs_that_are_held_move_as_specified(from_, to):
    assert jobs.JOB_TRANSITIONS[from_] == to


def test_a_job_runs_only_after_it_was_claimed_and_completes_only_after_it_ran():
    assert {state for state, to in jobs.JOB_TRANSITIONS.items() if "COMPLETED" in to} == {"RUNNING"}
    assert "COMPLETED" not in jobs.JOB_TRANSITIONS["PENDING"] | jobs.JOB_TRANSITIONS["CLAIMED"]


def test_an_attempt_is_live_until_it_ends_in_one_of_six_ways():
    assert {"CLAIMED", "RUNNING"} == jobs.LIVE
    assert set(AttemptState) - jobs.LIVE == {
        "COMPLETED", "FAILED", "CANCELLED", "RESUBMITTED", "REQUEUED", "RELEASED",
    }  # fmt: skip
    assert {"CLAIMED"} == jobs.ATTEMPT_INITIAL


@pytest.mark.parametrize(
    ("end", "of"),
    [
        ("RESUBMITTED", {"RUNNING"}),
        ("COMPLETED", {"RUNNING"}),
        ("REQUEUED", {"CLAIMED"}),
        ("RELEASED", {"CLAIMED", "RUNNING"}),
    ],
)
def test_code_that_ran_is_resubmitted_and_claims_are_requeued_or_released(end, of):
    assert {state for state, to in jobs.ATTEMPT_TRANSITIONS.items() if end in to} == of


@pytest.mark.parametrize(
    ("words", "table"), [(JobState, jobs.JOB_TRANSITIONS), (AttemptState, jobs.ATTEMPT_TRANSITIONS)]
)
def test_every_state_stands_in_its_table_and_is_reached(words, table):
    assert set(words) == set(table)
    begins = {"PENDING", "BLOCKED"} if words is JobState else {"CLAIMED"}
    assert set(words) - begins <= set().union(*table.values())
    assert set(jobs.legal_transitions(table)) == {
        (str(from_), str(to)) for from_, onward in table.items() for to in onward
    }
