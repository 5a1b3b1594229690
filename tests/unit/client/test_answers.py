"""Types of the client match the answers and requests of the API."""

import subprocess
import sys
from typing import get_args

import pytest

from controlplane.client import answers, batch_answers, flow_answers, requests
from jobs import states
from jobs.api.logs import LogItem
from jobs.api.queues import QueueAnswer
from jobs.api.serializers import attempts, batches, execution_answers, jobs, open_executions, triggers
from jobs.api.serializers.holds import HoldAnswer
from liveness.api.serializers.servers import ServerDetail
from tests.support.standin import ROOT


@pytest.mark.parametrize(
    ("type", "serializer"),
    [
        (answers.Job, jobs.JobAnswer),
        (answers.Attempt, attempts.AttemptAnswer),
        (answers.TimelineEntry, attempts.TimelineEntry),
        (answers.LogLine, LogItem),
        (answers.Execution, execution_answers.ExecutionAnswer),
        (answers.ExecutionSummary, execution_answers.ExecutionSummary),
        (answers.ExecutionEvent, execution_answers.EventItem),
        (answers.Step, execution_answers.StepAnswer),
        (answers.Server, ServerDetail),
        (answers.Trigger, triggers.TriggerAnswer),
        (flow_answers.Queue, QueueAnswer),
        (flow_answers.Hold, HoldAnswer),
        (batch_answers.Batch, batches.BatchSummary),
        (batch_answers.BatchDetails, batches.BatchAnswer),
        (batch_answers.BatchItem, batches.ItemAnswer),
    ],
)
def test_a_type_of_answer_has_the_fields_of_the_answer(type, serializer):
    assert set(type.__annotations__) == set(serializer().fields)


def test_the_options_are_those_of_the_api():
    assert {*requests.JobOptions.__annotations__, "action", "payload"} == set(jobs.JobRequest().fields)
    given = {*requests.BatchOptions.__annotations__, "operation", "ids", "filter", "note"}
    assert given == set(batches.BatchRequest().fields)
    known = {*requests.ExecutionOptions.__annotations__, "name", "steps"}
    assert known == set(open_executions.ExecutionRequest().fields)


def test_the_states_are_those_that_there_are():
    assert set(get_args(answers.JobState)) == set(states.JobState)
    assert set(get_args(answers.ExecutionState)) == set(states.ExecutionState)
    assert set(get_args(batch_answers.BatchState)) == set(states.BatchState)


def test_the_client_imports_no_django_and_nothing_of_the_control_plane_but_the_agent():
    code = (
        "import sys, controlplane.client.__main__;"
        "forbidden = {'django', 'rest_framework', 'celery', 'psycopg', 'jobs', 'liveness'};"
        "print([name for name in sys.modules if name.partition('.')[0] in forbidden])"
    )
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
