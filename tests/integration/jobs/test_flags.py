"""Jobs that wait for a person to act are flagged in the API, on the overview and in the metrics."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from jobs.models import WorkerJob
from jobs.services import sweep
from jobs.services.liveness_check import check_liveness
from liveness.models import Server
from tests.integration.races.test_hot_paths import submit_many
from tests.support.transitions import put

pytestmark = pytest.mark.django_db

GPU = ["gpu", "script"]


@pytest.fixture
def flags(submit):
    """Return the flags of a job, which must be the same in the list and in its own response."""

    def flags(job):
        alone = submit.client.get(f"/jobs/{job['id']}").json()["flags"]
        listed = {item["id"]: item["flags"] for item in submit.client.get("/jobs").json()["items"]}
        assert listed[job["id"]] == alone
        return alone

    return flags


@pytest.fixture
def metric(api):
    def metric(flag):
        viewer = api("viewer")
        text = viewer.client.get("/metrics", headers={"Authorization": f"Bearer {viewer.token}"}).content.decode()
        [line] = [line for line in text.split("\n") if line.startswith(f'controlplane_flagged_jobs{{flag="{flag}"}}')]
        assert api("viewer").get("/instance").json()["flagged"][flag] == float(line.split()[-1])
        return float(line.split()[-1])

    return metric


@pytest.fixture
def first_page(client, db):
    client.force_login(User.objects.create_superuser("ada"))
    return lambda: client.get("/admin/instance/").content.decode()


def lose(one, clock):
    """Let a worker fall silent until it is lost and its attempts have moved."""
    clock.advance(60)
    check_liveness(), sweep.run_sweep()


def test_a_job_that_runs_on_a_lost_server_under_never_is_flagged(worker, submit, flags, metric, first_page, clock):
    job = submit()
    one = worker(config={"worker_task_restart_strategy": "NEVER"})
    one.hold()
    assert (flags(job), metric("held_by_lost_server")) == ([], 0)
    lose(one, clock)
    assert (flags(job), metric("held_by_lost_server")) == (["held_by_lost_server"], 1)
    assert "held_by_lost_server" in first_page()
    for _ in range(3):  # the server becomes NOT_RUNNING and INACTIVE, and still holds the job
        clock.advance(10), check_liveness()
    assert Server.objects.get(pk=one.id).state == "INACTIVE"
    assert (flags(job), metric("held_by_lost_server")) == (["held_by_lost_server"], 1)


def test_a_silent_server_that_is_not_lost_flags_nothing(worker, submit, flags, clock):
    job = submit()
    worker(config={"worker_task_restart_strategy": "NEVER"}).hold()
    clock.advance(30)
    assert flags(job) == []


def test_a_job_that_waits_for_tags_that_nobody_has_is_flagged(worker, submit, flags, metric, first_page):
    job = submit(tags=["gpu"], unmatched="wait")
    worker()
    assert (flags(job), metric("waits_for_tags")) == (["waits_for_tags"], 1)
    assert "waits_for_tags" in first_page()
    worker(tags=GPU, name="gpu")
    assert (flags(job), metric("waits_for_tags")) == ([], 0)
    assert "waits_for_tags" not in first_page()


def test_what_fails_by_itself_is_not_flagged_unless_nothing_ever_fails(submit, flags, settings):
    job = submit(tags=["gpu"])
    assert flags(job) == []
    settings.JOBS = {"UNMATCHED_AFTER": None}
    assert flags(job) == ["waits_for_tags"]


def test_what_waits_for_its_moment_is_not_flagged(submit, flags):
    later = timezone.now() + timezone.timedelta(hours=1)
    assert flags(submit(tags=["gpu"], unmatched="wait", available_at=later.isoformat())) == []


def refuse(one):
    (attempt,) = one.claim(limit=1)
    one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "not_allowed"})


def test_a_job_that_all_workers_refused_is_flagged_until_another_one_comes(worker, submit, flags, metric):
    job = submit(unmatched="wait")
    refuse(worker())
    assert (flags(job), metric("refused_by_all")) == (["refused_by_all"], 1)
    worker(name="other")
    assert (flags(job), metric("refused_by_all")) == ([], 0)


def test_a_job_that_every_matching_worker_refused_is_unmatched(worker, submit, flags, clock):
    refused, beside = submit(), submit(priority=-1)
    one = worker()
    refuse(one)
    for _ in range(8):
        clock.advance(5), one.beat()
    assert flags(refused) == []  # no flag, because it fails automatically
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}
    assert WorkerJob.objects.get(pk=refused["id"]).error["code"] == "NO_MATCHING_WORKER"
    assert WorkerJob.objects.get(pk=beside["id"]).state == "PENDING"


def test_a_job_that_one_of_two_workers_refused_waits_for_the_other(worker, submit, flags, clock):
    job = submit(unmatched="wait")
    one, _ = worker(), worker(name="other")
    refuse(one)
    clock.advance(40)
    assert sweep.run_sweep()["unmatched"] == {}
    assert flags(job) == []


@pytest.mark.parametrize("running", [True, False])
def test_a_job_that_was_lost_with_its_worker_waits_for_another_and_is_flagged(
    worker, submit, flags, metric, clock, running
):
    job = submit(tags=["gpu"])
    one = worker(tags=GPU, config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold(running=running)
    lose(one, clock)
    clock.advance(1000)
    sweep.run_sweep()
    assert (flags(job), metric("waits_after_loss")) == (["waits_after_loss"], 1)
    worker(tags=GPU, name="another").hold()
    assert flags(job) == []


def test_during_the_deployment_of_a_pool_what_its_workers_gave_back_waits(worker, submit, flags, clock):
    job = submit(tags=["gpu"])
    one = worker(tags=GPU)
    attempt = one.hold()
    one.beat(state="TERMINATING")
    one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "stopped"})
    one.beat(state="TERMINATED_FORCED")
    clock.advance(1000)
    assert sweep.run_sweep()["unmatched"] == {}
    assert flags(job) == ["waits_after_loss"]


def test_without_wait_after_loss_a_lost_job_fails_as_any_other(worker, submit, clock, settings):
    settings.JOBS = {"WAIT_AFTER_LOSS": False}
    submit(tags=["gpu"])
    one = worker(tags=GPU, config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold()
    lose(one, clock)
    clock.advance(40)
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}


def test_a_refusal_is_no_loss(worker, submit, clock):
    submit(tags=["gpu"])
    one = worker(tags=GPU)
    refuse(one)
    put(Server.objects.get(), "ERROR")
    clock.advance(40)
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}


def test_the_step_that_is_an_execution_is_never_flagged(begin, metric, settings):
    settings.JOBS = {"UNMATCHED_AFTER": None}
    inner = {
        "type": "execution",
        "name": "inner",
        "steps": [{"key": "x", "action": {"type": "script", "command": "a"}}],
    }
    begin(
        {"key": "child", "action": inner}, {"key": "x", "action": {"type": "script", "command": "a"}, "tags": ["gpu"]}
    )
    WorkerJob.objects.filter(step="child").update(state="PENDING")
    WorkerJob.objects.filter(execution__name="inner").update(state="CANCELLED", finished_at=timezone.now())
    assert metric("waits_for_tags") == 1


def test_the_refused_are_found_by_an_index(submit, worker):
    submit(unmatched="wait")
    refuse(worker())
    submit_many(2000)
    with connection.cursor() as cursor:
        cursor.execute("analyze jobs_workerjob")  # many jobs wait, and few of them were refused
        cursor.execute("set local enable_seqscan = off")
        cursor.execute("explain select id from jobs_workerjob j where j.state = 'PENDING' and j.refused_by <> '{}'")
        assert "job_refused" in str(cursor.fetchall())


def test_the_page_of_a_flagged_job_shows_the_reason_and_no_time_to_fail(worker, submit, clock, client, db):
    job = submit(tags=["gpu"])
    one = worker(tags=GPU, config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold()
    lose(one, clock)
    client.force_login(User.objects.create_superuser("ada"))
    page = client.get(f"/admin/instance/jobs/{job['id']}/").content.decode()
    assert "waiting for another worker, because its worker was lost" in page
    assert "NO_MATCHING_WORKER" not in page


@pytest.mark.parametrize("why", ["NEVER", "switched off"])
def test_a_stale_runner_that_nothing_ends_is_flagged(worker, submit, flags, metric, first_page, clock, settings, why):
    settings.JOBS = {"AUTO_FAIL_STALE_RUNNING": why == "NEVER"}
    job = submit()
    one = worker(config={"worker_task_restart_strategy": "NEVER" if why == "NEVER" else "IMMEDIATELY"})
    one.hold()
    for silent, expected in ((300, []), (1, ["stale_runner"])):
        clock.advance(silent)
        one.beat()
        sweep.run_sweep()
        assert (flags(job), metric("stale_runner")) == (expected, len(expected))
    assert "stale_runner" in first_page()


def test_a_stale_runner_that_the_sweep_ends_is_not_flagged(worker, submit, flags, clock):
    job = submit()
    one = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold()
    clock.advance(301)
    one.beat()
    assert flags(job) == []


@pytest.mark.parametrize("is_on", [True, False])
def test_a_stuck_claim_is_flagged_while_its_recovery_is_off(
    worker, submit, flags, metric, first_page, clock, settings, is_on
):
    settings.JOBS = {"AUTO_REQUEUE_STALE_CLAIMED": is_on}
    job = submit()
    one = worker()
    one.hold(running=False)
    clock.advance(121)
    one.beat()
    expected = [] if is_on else ["stale_claim"]
    assert (flags(job), metric("stale_claim")) == (expected, len(expected))
    assert ("stale_claim" in first_page()) == (not is_on)
