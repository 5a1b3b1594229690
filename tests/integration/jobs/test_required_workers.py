"""Jobs that require a worker, and the obstacle if none is eligible."""

import pytest

from controlplane.openapi import PROBLEMS
from jobs.errors import PROBLEMS_BY_FILTER, NoFreshWorkers
from jobs.models import WorkerJob
from liveness.models import Instance, Server
from tests.integration.jobs.test_submission import job
from tests.support.http import Worker

NO_WORKER = "No workers with fresh heartbeats available"


def assert_no_worker(answer):
    body = answer.json()
    assert (answer.status_code, body["code"], body["status"]) == (503, "no_fresh_workers", 503)
    assert (body["title"], body["detail"]) == (NO_WORKER, NO_WORKER)
    assert int(answer.headers["Retry-After"]) > 0


def stale(clock, one):
    clock.advance(31)


def update(**changes):
    return lambda clock, one: Server.objects.filter(pk=one.id).update(**changes)


def maintain(clock, one):
    Instance.objects.update(maintenance_since="2026-01-01T00:00:00Z", maintenance_by="operator:o")


DRAIN = {"drain_deadline": "2100-01-01T00:00:00Z", "drain_until_observed": 1e9}


def both(*changes):
    return lambda clock, one: [change(clock, one) for change in changes]


def assert_in_the_way(answer, filter, code):
    body = answer.json()
    assert (answer.status_code, body["code"], body["filter"]) == (503, code, filter)
    assert body["required_tags"] == ["script"]
    if code == "no_fresh_workers":
        assert body["title"] == NO_WORKER
        assert body["detail"] == NO_WORKER if filter == "freshness" else body["detail"].endswith(f"({filter}).")
    else:
        assert NO_WORKER not in (body["title"], body["detail"])
        assert filter in body["detail"]


@pytest.mark.parametrize(("happens", "filter", "code"), [
    (stale, "freshness", "no_fresh_workers"),
    (both(stale, maintain), "freshness", "no_fresh_workers"),
    (maintain, "maintenance", "workers_in_maintenance"),
    (update(state="MAINTENANCE"), "maintenance", "workers_in_maintenance"),
    (update(cordoned_by="operator:o"), "cordon", "workers_cordoned"),
    (update(**DRAIN), "cordon", "workers_cordoned"),
    (update(tags=["python"]), "tags", "no_fresh_workers"),
    (update(max_concurrent=0), "capacity", "no_fresh_workers"),
], ids=["stale", "stale and in maintenance", "maintenance", "own maintenance", "cordoned", "draining", "tags",
        "no room ever"])  # fmt: skip
@pytest.mark.parametrize("many", [False, True])
def test_a_job_that_requires_a_worker_is_refused_with_the_filter_that_is_in_the_way(
    submitter, worker, clock, happens, filter, code, many
):
    one = worker(config={"heartbeat_interval_seconds": 10, "timeout_seconds": 45})
    body = job(require_worker=True, key="k")
    happens(clock, one)
    assert_in_the_way(submitter.post("/jobs", [job(), body] if many else body), filter, code)
    assert not WorkerJob.objects.exists()
    assert submitter.post("/jobs", job(require_worker=False, unmatched="wait")).status_code == 201


def test_a_server_that_is_no_worker_is_none(submitter, api):
    Worker.register(api("worker"), type="EXECUTOR")
    assert_no_worker(submitter.post("/jobs", job(require_worker=True)))


def test_the_openapi_document_lists_every_code_of_an_obstacle():
    for problem in (NoFreshWorkers, *PROBLEMS_BY_FILTER.values()):
        assert f"`{problem.code}`" in PROBLEMS["503"]


def test_a_worker_that_is_not_running_yet_is_named_as_such(submitter, api):
    Worker.register(api("worker")).beat()
    assert_in_the_way(submitter.post("/jobs", job(require_worker=True)), "state", "no_fresh_workers")


def test_of_several_workers_the_filter_is_named_that_ruled_out_the_last(submitter, worker, clock):
    worker(name="other", tags=["python"]), worker(name="asleep", max_concurrent=1)
    clock.advance(20)
    cordoned = worker(name="cordoned")
    cordoned.beat(schedulable=False, reason="its probe fails")
    assert_in_the_way(submitter.post("/jobs", job(require_worker=True)), "cordon", "workers_cordoned")


@pytest.mark.parametrize("action", [{"type": "docker"}, {"type": "script", "runner": "docker", "command": "true"}],
                         ids=["image", "script"])  # fmt: skip
def test_a_container_that_needs_gpus_requires_a_worker_that_has_found_some(submitter, worker, action):
    needs = job(require_worker=True, action={**action, "image": "cuda", "resources": {"gpus": 1}})
    worker(tags=["script", "docker"])
    refused = submitter.post("/jobs", needs)
    assert (refused.status_code, refused.json()["filter"]) == (503, "tags")
    assert "runtime:gpu" in refused.json()["detail"]
    worker(tags=["script", "docker", "runtime:gpu"])
    assert submitter.post("/jobs", needs).status_code == 201


def test_a_full_worker_is_one_to_wait_for(submitter, worker):
    one = worker(max_concurrent=1)
    submitter.post("/jobs", job())
    one.hold()
    answer = submitter.post("/jobs", job(require_worker=True))
    assert answer.status_code == 201
    assert "require_worker" not in answer.json()


def test_each_job_of_a_list_requires_a_worker_of_its_own(submitter, worker):
    worker(tags=["script", "a"])
    needs = [job(require_worker=True, tags=[tag]) for tag in "ab"]
    assert submitter.post("/jobs", needs[:1]).status_code == 201
    assert submitter.post("/jobs", needs).json()["code"] == "no_fresh_workers"
    assert submitter.post("/jobs", [needs[0], job(tags=["b"])]).status_code == 201
    assert WorkerJob.objects.count() == 3


def test_requiring_a_worker_is_no_content_and_a_known_job_is_found_without_one(submitter, worker):
    first = submitter.post("/jobs", job(key="k")).json()
    again = submitter.post("/jobs", job(key="k", require_worker=True))
    assert (again.status_code, again.json()) == (200, first)
    assert submitter.post("/jobs", job(key="k", require_worker=True, priority=1)).json()["code"] == "key_conflict"
