"""An ended job can be submitted again only once, unless that is forced. The old and the new job link to each other."""

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from jobs.models import WorkerJob
from liveness.services import tokens
from tests.support.http import Caller
from tests.support.processes import eventually
from tests.support.waiters import count_waiters


@pytest.fixture
def boss(client):
    client.force_login(User.objects.create_superuser("ann"))
    return client


@pytest.fixture
def failed(submit, api):
    """Return jobs that an operator has failed."""
    operator = api("operator")

    def failed(number=1):
        jobs = [submit()["id"] for _ in range(number)]
        for job in jobs:
            operator.post(f"/jobs/{job}/fail", {"note": "no"})
        return jobs if number > 1 else jobs[0]

    return failed


def test_a_job_is_resubmitted_once_unless_that_is_forced(failed, api):
    job, operator = failed(), api("operator")
    first = operator.post(f"/jobs/{job}/resubmit", {})
    again = operator.post(f"/jobs/{job}/resubmit", {})
    assert (first.status_code, again.status_code, again.json()["code"]) == (201, 409, "already_resubmitted")
    forced = operator.post(f"/jobs/{job}/resubmit", {"force": True})
    assert forced.status_code == 201
    seen = operator.get(f"/jobs/{job}").json()
    assert (seen["resubmitted_as"], forced.json()["resubmission_of"]) == (forced.json()["id"], job)


def test_the_same_call_again_finds_the_same_job(failed, api):
    job, operator = failed(), api("operator")
    once = {"Idempotency-Key": "once"}
    first, again = (operator.post(f"/jobs/{job}/resubmit", {}, **once) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


def test_the_pages_mark_both_and_link_them(failed, api, boss):
    job = failed()
    new = api("operator").post(f"/jobs/{job}/resubmit", {}).json()["id"]
    pages = {id: boss.get(f"/admin/instance/jobs/{id}/").content.decode() for id in (job, new)}
    assert f'It was resubmitted as <a href="/admin/instance/jobs/{new}/">' in pages[job]
    assert f'It is a resubmission of <a href="/admin/instance/jobs/{job}/">' in pages[new]
    listed = boss.get("/admin/instance/jobs/").content.decode()
    assert f'<a href="/admin/instance/jobs/{new}/">resubmitted</a>' in listed


def test_the_list_shows_those_that_were_not_resubmitted_yet(failed, api, boss):
    first, second = failed(2)
    api("operator").post(f"/jobs/{first}/resubmit", {})
    listed = boss.get("/admin/instance/jobs/?state=FAILED&open=1").content.decode()
    assert re.findall(r'id="job-([^"]+)"', listed) == [second]


def test_a_bulk_resubmission_skips_resubmitted_jobs_and_a_page_forces_one(failed, api, boss):
    first, second = failed(2)
    api("operator").post(f"/jobs/{first}/resubmit", {})
    for path in (f"jobs/resubmit/?pick={first}&pick={second}", "jobs/resubmit/?all=1&state=FAILED"):
        page = boss.get(f"/admin/instance/{path}").content.decode()
        assert "Resubmit: 1 job" in page and "already resubmitted" in page
    assert "jobs/resubmit_again/" not in boss.get(f"/admin/instance/jobs/{second}/").content.decode()
    assert f"jobs/resubmit_again/?pick={first}" in boss.get(f"/admin/instance/jobs/{first}/").content.decode()
    body = {"seen": f"{first} FAILED", "note": "once more", "key": "k"}
    assert boss.post(f"/admin/instance/jobs/resubmit_again/?pick={first}", body).status_code == 302
    assert WorkerJob.objects.filter(resubmission_of=first).count() == 2


def test_of_concurrent_calls_one_resubmits_and_the_others_are_refused(committed, threads):
    client, operator = (Caller(tokens.create_token(role, role)) for role in ("client", "operator"))
    job = client.post("/jobs", {"action": {"type": "script", "command": "false"}}).json()["id"]
    operator.post(f"/jobs/{job}/fail", {"note": "no"})
    with transaction.atomic():
        WorkerJob.objects.select_for_update(no_key=True).get(pk=job)
        calls = [threads(operator.post, f"/jobs/{job}/resubmit", {}) for _ in range(6)]
        eventually(lambda: waiting_for_locks() == len(calls))
    answers = sorted((answer.status_code, answer.json().get("code")) for answer in [call.result(60) for call in calls])
    assert answers == [(201, None)] + [(409, "already_resubmitted")] * 5
    assert WorkerJob.objects.filter(resubmission_of=job).count() == 1


def waiting_for_locks():
    with connection.cursor() as cursor:
        return count_waiters(cursor)
