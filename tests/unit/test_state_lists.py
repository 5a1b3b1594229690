"""Lists of states that are not derived, since agents and clients are installed without the apps, agree with them."""

from controlplane.agent import verdicts
from controlplane.agent.celery import ledger
from controlplane.client import output
from jobs import states
from jobs.services import reports
from jobs.states import AttemptState, ExecutionState, JobState, TaskState
from liveness.states import ServerState


def test_the_command_line_colours_states_that_there_are():
    assert set(output.COLOURS) <= {*JobState, *AttemptState, *ExecutionState, *ServerState}


def test_the_command_line_tells_by_their_colours_jobs_that_have_ended_from_those_that_wait():
    assert states.TERMINAL | {JobState.CLAIMED, JobState.RUNNING} == set(output.COLOURS) & set(JobState)


def test_the_agent_ends_an_attempt_with_the_events_that_end_it():
    assert set(verdicts.FINAL_EVENTS) == reports.ENDS


def test_the_workers_of_celery_say_states_that_there_are():
    assert {*ledger.ENDS, "HELD", "RUNNING", "SENT"} == set(TaskState)
    assert set(ledger.COUNTED) <= set(ledger.ENDS)
