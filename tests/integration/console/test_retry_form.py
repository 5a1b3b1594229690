"""*Retry failed steps…* on an execution: from a chosen step, with changed inputs."""

import json

import pytest

from jobs.models import Execution
from liveness.models import ServerEvent
from tests.support.executions import step
from tests.support.operators import actions

pytestmark = pytest.mark.django_db
PAGES = "/admin/instance/"
INPUTS = {"day": "monday", "password": "hunter22"}


@pytest.fixture
def browser(staff):
    return staff("rerun_execution", checks_csrf=False)


@pytest.fixture
def failed(begin, do):
    run = begin(step("a"), step("b", "a"), step("c", "b"), inputs=INPUTS)
    do("a")
    do("b")
    do("c", fails=True)
    return run


def send(browser, run, **fields):
    given = {"from_step": "", "inputs": json.dumps({"day": "monday", "password": "***"}), "note": "why", **fields}
    return browser.post(f"{PAGES}executions/{run.id}/retry/", given)


def latest_states():
    steps = Execution.objects.order_by("-pk")[0].steps.order_by("position")
    return {one.step: one.state for one in steps}


def test_the_form_is_filled_and_hides_secrets(browser, failed):
    assert "Retry failed steps…" in browser.get(f"{PAGES}executions/{failed.id}/").content.decode()
    page = browser.get(f"{PAGES}executions/{failed.id}/retry/").content.decode()
    assert "From step" in page and '<option value="b">b</option>' in page
    assert "monday" in page and "hunter22" not in page


def test_failed_steps_are_retried_and_completed_ones_kept(browser, failed):
    answer = send(browser, failed)
    begun = Execution.objects.order_by("-pk")[0]
    assert answer.headers["Location"] == f"{PAGES}executions/{begun.pk}/"
    assert latest_states() == {"a": "COMPLETED", "b": "COMPLETED", "c": "PENDING"}
    assert begun.inputs == INPUTS
    [event] = ServerEvent.objects.filter(action="restart_execution")
    assert (event.actor, event.reason, event.changes) == ("operator:ann", "why", None)


def test_a_chosen_step_runs_again_with_changed_inputs(browser, failed):
    send(browser, failed, from_step="b", inputs='{"day": "tuesday", "password": "***"}')
    assert latest_states() == {"a": "COMPLETED", "b": "PENDING", "c": "BLOCKED"}
    begun = Execution.objects.order_by("-pk")[0]
    assert begun.inputs == {"day": "tuesday", "password": "hunter22"}
    assert begun.steps.get(step="b").payload == begun.inputs
    [event] = ServerEvent.objects.filter(action="restart_execution")
    assert event.changes["from_step"] == {"old": None, "new": "b"}
    assert event.changes["inputs"]["new"] == {"day": "tuesday", "password": "***"}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"inputs": "{"}, "This is not JSON"),
        ({"inputs": "[1]"}, "Expected a dictionary"),
        ({"from_step": "z"}, "The execution has no step"),
        ({"note": ""}, "This field is required"),
    ],
)
def test_an_invalid_retry_begins_nothing(browser, failed, wrong, named):
    answer = send(browser, failed, **wrong)
    assert (answer.status_code, Execution.objects.count()) == (200, 1)
    assert named in answer.content.decode()


def test_a_retry_that_is_sent_twice_begins_once(browser, failed):
    first, second = send(browser, failed, key="k"), send(browser, failed, key="k")
    assert first.headers["Location"] == second.headers["Location"]
    assert actions() == ["restart_execution"]


def test_a_running_execution_cannot_be_retried(browser, begin):
    run = begin(step("a"))
    assert "Retry failed steps…" not in browser.get(f"{PAGES}executions/{run.id}/").content.decode()
    assert "Only one that has ended" in browser.get(f"{PAGES}executions/{run.id}/retry/").content.decode()
    assert send(browser, run).status_code == 409


def test_a_reader_may_not_retry(reader, failed):
    assert reader.get(f"{PAGES}executions/{failed.id}/retry/").status_code == 403
