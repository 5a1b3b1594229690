"""Copied lists of states, needed because agents and clients are installed without the apps, are up to date."""

from controlplane.agent.api.reports import FINAL_EVENTS
from controlplane.agent.celery.heart import task_records
from controlplane.client import output
from jobs import states
from jobs.services import reports
from jobs.states import AttemptState, ExecutionState, JobState, TaskState
from liveness.states import ServerState


def test_the_command_line_colours_states_that_there_are():
    assert set(output.COLOURS) <= {*JobState, *AttemptState, *ExecutionState, *ServerState}


def test_the_command_line_has_a_colour_for_each_job_state_but_the_waiting_ones():
    assert states.TERMINAL | {JobState.CLAIMED, JobState.RUNNING} == set(output.COLOURS) & set(JobState)


def test_the_agent_ends_an_attempt_with_the_events_that_end_it():
    assert set(FINAL_EVENTS) == reports.ENDS


def test_celery_workers_report_only_states_that_exist():
    assert {*task_records.ENDS, "HELD", "RUNNING", "SENT"} == set(TaskState)
    assert set(task_records.COUNTED) <= set(task_records.ENDS)
