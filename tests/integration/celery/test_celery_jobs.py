"""Jobs whose action is a Celery task: a worker of their queue claims them and runs them like any other job."""

import pytest

from jobs.services.liveness_check import check_liveness
from tests.support.celery_tasks import TAGS

SEND = {"type": "celery", "task": "orders.send", "args": ["ann"], "kwargs": {"copies": 2}, "queue": "letters"}


@pytest.fixture
def sender(celery_worker):
    return celery_worker(tags=["celery", *TAGS])


def test_a_task_is_given_to_a_worker_of_its_queue_and_its_result_is_the_output(submit, worker, sender):
    job = submit(action=SEND)
    assert (job["kind"], job["required_tags"]) == ("TASK", ["celery", "queue:letters"])
    assert worker(tags=["celery", "queue:parcels"]).claim() == []
    assert worker(tags=["python", "queue:letters"]).claim() == [], "it only shares the name of a tag"
    attempt = sender.hold()
    assert attempt["job"]["action"] == SEND
    sender.complete(attempt, {"sent": 2})
    job = submit.client.get(f"/jobs/{job['id']}").json()
    assert (job["state"], job["output"]) == ("COMPLETED", {"sent": 2})


def test_a_task_that_names_no_queue_is_of_the_one_that_celery_itself_takes(submit):
    job = submit(action={"type": "celery", "task": "orders.send"})
    assert job["required_tags"] == ["celery", "queue:celery"]


def test_without_a_worker_of_its_queue_the_placement_shows_the_missing_tags(submit, worker):
    other = worker(tags=["celery", "queue:parcels"])
    job = submit(action=SEND, unmatched="wait")
    (ruled_out,) = submit.client.get(f"/jobs/{job['id']}/placement").json()["ruled_out"]
    assert (ruled_out["server"]["id"], ruled_out["filter"]) == (other.id, "tags")
    assert "queue:letters" in ruled_out["detail"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"args": {"name": "ann"}}, 'Use a list, like [1, "two"].'),
        ({"kwargs": ["ann"]}, 'Use an object, like {"amount": 1}.'),
        ({"countdown": 10}, "Unknown field. Known fields are: type, task, args, kwargs, queue."),
    ],
)
def test_what_is_no_task_is_refused_with_a_sentence(submit, wrong, sentence):
    answer = submit.client.post("/jobs", {"action": SEND | wrong})
    assert answer.status_code == 400
    assert answer.json()["errors"]["action"] == {next(iter(wrong)): [sentence]}


def test_a_task_is_a_step_as_any_other_action(begin, sender):
    run = begin({"key": "send", "action": SEND}, {"key": "bill", "action": SEND, "depends_on": ["send"]})
    for step in ("send", "bill"):
        attempt = sender.hold()
        assert attempt["job"]["step"] == step
        sender.complete(attempt)
    assert run.state == "COMPLETED"


def test_the_task_of_a_lost_worker_is_run_again_by_another(submit, celery_worker, sender):
    job = submit(action=SEND)
    attempt = sender.hold()
    sender.beat(state="ERROR")
    check_liveness()
    again = celery_worker("two", tags=["celery", *TAGS]).hold()
    assert (again["job"]["id"], again["number"]) == (job["id"], 2)
    assert not sender.complete(attempt, "late")["accepted"]
