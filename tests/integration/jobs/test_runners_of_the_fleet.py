"""Jobs that no worker of the fleet can run are refused at their submission, or wait if that was requested."""

import pytest

from jobs.models import Execution, WorkerJob
from liveness.models import Server
from tests.integration.jobs.test_execution_calls import step
from tests.integration.jobs.test_submission import job
from tests.support.http import Worker

DOCKER = {"type": "docker", "image": "busybox"}
POD_SCRIPT = {"type": "script", "runner": "pod", "image": "busybox", "command": "true"}
GPU = {**DOCKER, "resources": {"gpus": 1}}


def assert_refused(answer, *tags):
    body = answer.json()
    assert (answer.status_code, body["code"]) == (409, "no_runner"), body
    assert body["required_tags"] == list(tags)
    assert ", ".join(tags) in body["detail"]
    assert '"unmatched": "wait"' in body["detail"]
    assert not WorkerJob.objects.exists()
    assert not Execution.objects.exists()


@pytest.mark.parametrize(
    ("action", "tags"),
    [
        (DOCKER, ["docker"]),
        (POD_SCRIPT, ["script", "kubernetes"]),
        (GPU, ["docker", "runtime:gpu"]),
        ({"type": "callable", "path": "a:b"}, ["python"]),
    ],
    ids=["docker", "script in a pod", "docker with a gpu", "callable"],
)
@pytest.mark.parametrize("many", [False, True])
def test_an_action_without_a_runner_is_refused_with_the_missing_tags(submitter, worker, action, tags, many):
    worker(tags=["script"])
    body = job(action=action)
    assert_refused(submitter.post("/jobs", [job(), body] if many else body), *tags)
    worker(name="other", tags=tags)
    assert submitter.post("/jobs", body).status_code == 201


@pytest.mark.parametrize("value", ["a\nb", "a\r", "x" * 60_000])
@pytest.mark.parametrize("command", [{}, {"command": ["env"]}])
def test_a_value_that_an_image_by_itself_cannot_have_is_refused(submitter, worker, value, command):
    worker(tags=["docker", "kubernetes"])
    answer = submitter.post("/jobs", job(action={**DOCKER, "env": {"A": "b", "KEY": value}, **command}))
    assert answer.status_code == 400 and "write the command as a text" in answer.content.decode()
    assert not WorkerJob.objects.exists()
    for taken in ({"command": "env"}, {"type": "pod", **command}):
        action = {**DOCKER, "env": {"A": "b", "KEY": value}, **taken}
        assert submitter.post("/jobs", job(action=action)).status_code == 201


def test_it_waits_if_asked(submitter, worker):
    worker(tags=["script"])
    answer = submitter.post("/jobs", job(action=DOCKER, unmatched="wait"))
    assert (answer.status_code, answer.json()["state"]) == (201, "PENDING")


def test_while_no_worker_is_there_it_waits_for_the_first_ones(submitter, api, worker):
    assert submitter.post("/jobs", job(action=DOCKER)).status_code == 201
    Worker.register(api("worker"), type="EXECUTOR")
    assert submitter.post("/jobs", job(action=DOCKER)).status_code == 201


def test_where_all_wait_for_ever_it_waits(submitter, worker, settings):
    settings.JOBS = {**settings.JOBS, "UNMATCHED_AFTER": None}
    worker(tags=["script"])
    assert submitter.post("/jobs", job(action=DOCKER)).status_code == 201


def test_a_worker_with_a_heartbeat_within_unmatched_after_still_counts(submitter, worker, clock):
    worker(name="scripts", tags=["script"])
    gone = worker(name="containers", tags=["docker"])
    gone.beat(state="TERMINATED_GRACEFULLY")
    assert submitter.post("/jobs", job(action=DOCKER, key="soon")).status_code == 201
    clock.advance(31)
    assert submitter.post("/jobs", job(action=DOCKER, key="late")).json()["code"] == "no_runner"
    assert submitter.post("/jobs", job(action=DOCKER, key="soon")).status_code == 200


def test_nothing_is_refused_in_maintenance_nor_before_its_workers_can_be_back(submitter, worker, operator, clock):
    worker(tags=["script"])
    operator("maintenance_enter")
    clock.advance(60)
    assert submitter.post("/jobs", job(action=DOCKER)).status_code == 201
    operator("maintenance_exit")
    clock.advance(29)
    assert submitter.post("/jobs", job(action=DOCKER)).status_code == 201
    clock.advance(2)
    assert submitter.post("/jobs", job(action=DOCKER)).json()["code"] == "no_runner"


def test_tags_and_handlers_are_names_that_may_come_later(submitter, worker):
    worker(tags=["script"])
    assert submitter.post("/jobs", job(tags=["eu-west"])).status_code == 201
    assert submitter.post("/jobs", job(action={"type": "handler", "name": "new"})).status_code == 201


def test_workers_of_another_namespace_take_nothing(submitter, worker):
    other = worker(name="other", tags=["docker"])
    worker(tags=["script"])
    Server.objects.filter(pk=other.id).update(namespace="blue")
    assert_refused(submitter.post("/jobs", job(action=DOCKER)), "docker")


CHILD = {"type": "execution", "name": "child", "steps": [step("inner", action=DOCKER)]}


@pytest.mark.parametrize(
    "steps",
    [[step("a"), step("b", "a", action=DOCKER)], [step("a"), step("child", "a", action=CHILD)]],
    ids=["step", "step of a child"],
)
def test_an_execution_is_refused_for_one_of_its_steps(submitter, worker, steps):
    worker(tags=["script"])
    body = {"name": "pipeline", "steps": steps}
    assert_refused(submitter.post("/executions", body), "docker")
    assert_refused(submitter.post("/jobs", {"action": {"type": "execution", **body}}), "docker")
    assert submitter.post("/jobs", {"action": {"type": "execution", **body}, "unmatched": "wait"}).status_code == 201


def test_a_step_that_is_to_wait_is_no_reason_to_refuse_its_execution(submitter, worker):
    worker(tags=["script"])
    body = {"name": "pipeline", "steps": [step("a"), step("b", "a", action=DOCKER, unmatched="wait")]}
    assert submitter.post("/executions", body).status_code == 201
