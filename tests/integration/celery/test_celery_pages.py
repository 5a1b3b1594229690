"""Celery tasks on the Instance pages: their details, the outcomes by worker, and the quarantine."""

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import WorkerJob
from tests.integration.console.test_page_actions import act
from tests.support.celery_tasks import quarantined, task, then

PAGES = "/admin/instance/"


@pytest.fixture
def boss(db):
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("boss"))
    return client


@pytest.fixture
def page(boss):
    def page(address):
        answer = boss.get(PAGES + address)
        assert answer.status_code == 200
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode().partition("<main")[2]))

    return page


def job(id="t"):
    return WorkerJob.objects.get(key=id).pk


def test_the_page_of_a_task_shows_its_details_and_attempts(one, two, page):
    one.say(task(retries=1, root="the-root", parent="the-parent"))
    two.say(task(retries=1))
    shown = page(f"jobs/{job()}/")
    assert "celery: orders.send" in shown and "the broker gave it to two" in shown and "RESUBMITTED" in shown
    assert "letters" in shown
    one.say(task("u", retries=1, root="the-root", parent="the-parent"))
    assert "the-root , the-parent" in page(f"jobs/{job('u')}/")


def test_tasks_are_found_by_their_name_and_by_their_id(one, page):
    one.say(task("an-id", name="orders.find_me"), task("other"))
    for query in "q=find_me", "q=an-id", "kind=CELERY&q=find_me":
        assert page(f"jobs/?{query}").count("celery: orders.") == 1


def test_the_page_of_a_worker_shows_what_it_holds_and_how_its_tasks_ended(one, page):
    one.say(
        task(), counter=str(uuid.uuid4()), tally=[{"name": "orders.count", "completed": 7, "failed": 3, "seconds": 5}]
    )
    shown = page(f"servers/{one.id}/")
    assert "celery: orders.send" in shown
    assert "orders.count completed 7 failed 3 retried 0 lost 0 seconds each 0.500" in shown


def test_a_task_sent_again_leaves_the_quarantine_after_a_worker_has_done_it(one, boss, page):
    one.say(quarantined())
    assert "celery: orders.send" in page("quarantine/") and "resubmit or dismiss it" in page(f"jobs/{job()}/")
    assert act(boss, f"quarantine/resubmit/?pick={job()}").status_code in (200, 302)
    assert one.asks()["send"] == ["t"] and "the next worker with the same token sends it again" in page(
        f"jobs/{job()}/"
    )
    assert "celery: orders.send" in page("quarantine/")
    one.say(task(state="SENT"))
    assert "No job is in quarantine" in page("quarantine/")


def test_a_task_in_quarantine_can_be_dismissed(one, boss, page):
    one.say(quarantined())
    act(boss, f"quarantine/dismiss/?pick={job()}")
    assert "No job is in quarantine" in page("quarantine/")


def test_a_running_task_can_be_cancelled_but_not_resubmitted_or_failed(one, boss):
    report = task()
    one.say(report)
    for action in "resubmit", "fail":
        answer = boss.get(f"{PAGES}jobs/{action}/?pick={job()}")
        assert "its broker delivers it" in answer.content.decode()
    act(boss, f"jobs/cancel/?pick={job()}")
    assert one.beat().json()["cancel"] == [report["attempt"]]
    one.say(then(report, "REVOKED"))
    assert WorkerJob.objects.get().state == "CANCELLED"
