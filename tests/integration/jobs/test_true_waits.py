"""Waits count from the last time a job began to wait, and show what it really waits for."""

import re
from html import unescape

import pytest

from jobs.models import WorkerJob
from jobs.services import sweep
from jobs.services.liveness_check import check_liveness

IMMEDIATELY = {"worker_task_restart_strategy": "IMMEDIATELY"}


@pytest.fixture
def oldest(api):
    viewer = api("viewer")
    return lambda cluster="": viewer.get(f"/instance?cluster={cluster}" if cluster else "/instance").json()[
        "oldest_pending_seconds"
    ]


@pytest.fixture
def words(client, django_user_model):
    client.force_login(django_user_model.objects.create_superuser("ann"))

    def words(path, **form):
        answer = client.post(path, form, follow=True) if form else client.get(path)
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", answer.content.decode())))

    return words


def lose(clock, server, *others):
    for _ in range(4):
        clock.advance(46)
        for one in others:
            one.beat()
        check_liveness(), sweep.run_sweep()


def test_a_returned_job_has_waited_since_its_return(oldest, worker, submit, clock):
    submit()
    lost, full = worker(name="lost", config=IMMEDIATELY), worker(name="full")
    lost.hold()
    clock.advance(3600), lost.beat(), full.beat()
    assert oldest() is None
    lose(clock, lost, full)
    assert WorkerJob.objects.get().state == "PENDING"
    assert oldest() < 300 and oldest("default") < 300
    clock.advance(50)
    assert 50 <= oldest() < 350


def test_a_job_that_never_began_has_waited_since_its_submission(oldest, worker, submit, clock):
    submit()
    lost, full = worker(name="lost", config=IMMEDIATELY), worker(name="full")
    lost.hold()
    clock.advance(100), submit()
    clock.advance(3600), lost.beat(), full.beat()
    lose(clock, lost, full)
    assert 3600 <= oldest() < 3900


def test_a_job_that_waits_for_a_slot_shows_that_and_no_time_to_fail(words, worker, submit):
    submit()
    worker(name="full", max_concurrent=1).hold()
    job = submit()
    page = words(f"/admin/instance/jobs/{job['id']}/")
    assert "It waits for a free slot: the worker that may run it is full." in page
    assert "NO_MATCHING_WORKER" not in page and "No alive server may run it now" not in page


def test_a_job_whose_worker_is_cordoned_shows_no_time_to_fail(words, api, worker, submit):
    one = worker(name="one")
    api("operator").post(f"/servers/{one.id}/cordon", {"note": "disk"})
    page = words(f"/admin/instance/jobs/{submit()['id']}/")
    assert "Ruled out by cordon: 1" in page and "NO_MATCHING_WORKER" not in page


def test_a_job_in_maintenance_does_not_fail_and_shows_no_time_to_fail(words, api, worker, submit):
    worker(name="one")
    job = submit(tags=["gpu"])
    assert "It fails with NO_MATCHING_WORKER in 30 s unless" in words(f"/admin/instance/jobs/{job['id']}/")
    api("operator").post("/maintenance/enter", {"note": "a new switch"})
    assert "NO_MATCHING_WORKER" not in words(f"/admin/instance/jobs/{job['id']}/")


def test_a_cancelled_job_that_still_runs_shows_the_request(words, worker, submit):
    waiting, running = submit(tags=["gpu"]), submit()
    worker(name="one").hold()
    seen = {job["id"]: WorkerJob.objects.get(pk=job["id"]) for job in (waiting, running)}
    form = [f"{id} {job.state} {job.attempt_id or ''}".strip() for id, job in seen.items()]
    at = "/admin/instance/jobs/cancel/?" + "&".join(f"pick={id}" for id in seen)
    page = words(at, note="enough", seen=form)
    assert "Cancelled: 1 job." in page
    assert "Cancellation requested: 1 job. Waiting for the worker to confirm." in page
    assert "done to" not in page


def test_a_waiting_job_shows_how_many_jobs_of_its_queue_are_ahead_of_it(words, submit):
    jobs = [submit(priority=priority)["id"] for priority in (0, 5, 0, -1)]
    submit(priority=9, tags=["gpu"], unmatched="wait")
    submit(priority=9, available_at="2090-01-01T00:00:00Z")
    assert "2 jobs with the same tags are ahead of it." in words(f"/admin/instance/jobs/{jobs[2]}/")
    assert "1 job with the same tags is ahead of it." in words(f"/admin/instance/jobs/{jobs[0]}/")
    assert "ahead of it" not in words(f"/admin/instance/jobs/{jobs[1]}/")
    assert "3 jobs with the same tags are ahead of it." in words(f"/admin/instance/jobs/{jobs[3]}/")
