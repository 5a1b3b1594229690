"""Lists of jobs by flag, with the reason in each row, links to the right job, and the own names of Django tasks."""

import importlib
import re
from html import unescape

import pytest

from jobs.services import sweep
from jobs.services.liveness_check import check_liveness

IMMEDIATELY = {"worker_task_restart_strategy": "IMMEDIATELY"}


@pytest.fixture
def read(reader):
    def read(path=""):
        answer = reader.get(f"/admin/instance/{path}")
        assert answer.status_code == 200
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", answer.content.decode())))

    return read


@pytest.fixture
def stuck(worker, submit, clock):
    """Return one job for each flag, by flag; and jobs that only wait."""
    left = worker(name="left", tags=["script", "cpu"], max_concurrent=5)
    jobs = {"waits_after_loss": submit(tags=["gpu"], name="after-loss")}
    lost = worker(name="lost", tags=["script", "gpu"], config=IMMEDIATELY)
    lost.hold()
    jobs["held_by_lost_server"] = submit(tags=["never"], name="held")
    worker(name="keeps", tags=["script", "never"], config={"worker_task_restart_strategy": "NEVER"}).hold()
    for _ in range(3):
        clock.advance(46), left.beat(), check_liveness(), sweep.run_sweep()
    jobs["waits_for_tags"] = submit(tags=["quantum"], unmatched="wait", name="for-tags")
    jobs["refused_by_all"] = submit(tags=["cpu"], unmatched="wait", name="refused")
    attempt = left.hold(running=False)
    left.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "not_allowed"})
    submit(tags=["cpu"], name="only-waits")
    return jobs


FLAGS = ("waits_after_loss", "held_by_lost_server", "waits_for_tags", "refused_by_all")


@pytest.mark.parametrize("flag", FLAGS)
def test_jobs_are_found_by_flag_on_pages_and_in_the_api(stuck, reader, api, flag):
    items = api("viewer").get(f"/jobs?flag={flag}").json()["items"]
    assert [item["id"] for item in items] == [stuck[flag]["id"]]
    page = reader.get(f"/admin/instance/jobs/?flag={flag}").content.decode()
    assert re.findall(r'<tr [^>]*id="job-([0-9a-f-]{36})"', page) == [stuck[flag]["id"]]


def test_an_unknown_flag_is_refused(api):
    assert api("viewer").get("/jobs?flag=nonsense").status_code == 400


def test_a_client_finds_only_its_own_jobs_by_flag(stuck, submit, api):
    assert len(submit.client.get("/jobs?flag=waits_for_tags").json()["items"]) == 1
    assert api("client").get("/jobs?flag=waits_for_tags").json()["items"] == []


def test_the_list_of_jobs_shows_why_each_waits(stuck, read, submit):
    submit(tags=["nowhere"]), submit(available_at="2199-01-01T00:00:00Z")
    page = read("jobs/")
    assert all(flag in page for flag in FLAGS)
    assert re.search(r"NO_MATCHING_WORKER in 30 s, unless a worker with nowhere becomes available", page)
    assert "waits_for_tags quantum: waiting for tags" in page, "the end of a reason may be cut"
    assert "not before" in page


@pytest.mark.parametrize("query", ["", "?flag=waits_for_tags", "?flag=waits_for_tags&state=PENDING&q=for&server=left"])
def test_a_list_by_flag_takes_few_queries(stuck, reader, django_assert_max_num_queries, query):
    reader.get("/admin/instance/jobs/")
    with django_assert_max_num_queries(8):
        assert reader.get(f"/admin/instance/jobs/{query}").status_code == 200


def test_the_verdict_links_to_the_one_job_that_it_means(stuck, reader):
    page = reader.get("/admin/instance/").content.decode()
    for flag in FLAGS:
        assert (
            f'href="/admin/instance/jobs/{stuck[flag]["id"]}/"'
            in re.search(r'aria-label="Verdict">.*?</section>', page, re.S)[0]
        ), flag


def test_the_verdict_links_to_the_list_of_several_by_their_flag(reader, submit, worker):
    worker(), check_liveness()
    for _ in range(2):
        submit(tags=["quantum"], unmatched="wait")
    assert 'href="/admin/instance/jobs/?flag=waits_for_tags"' in reader.get("/admin/instance/").content.decode()


def test_django_tasks_have_their_own_name_everywhere(settings, worker, reader, read, api):
    settings.TASKS = {"default": {"BACKEND": "jobs.django_tasks.WorkerJobBackend", "QUEUES": ["default", "mail"]}}
    tasks = importlib.import_module("tests.support.project_tasks")
    id = tasks.add.enqueue(1, 2).id
    name = "tests.support.project_tasks.add"
    assert api("viewer").get(f"/jobs/{id}").json()["name"] == name
    assert name in read("jobs/") and name in read(f"jobs/{id}/")
    one = worker(tags=["handler:django-task", "queue:default"])
    one.hold()
    assert name in read(f"servers/{one.id}/")
