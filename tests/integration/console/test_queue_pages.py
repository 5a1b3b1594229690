"""The page of queues: what waits and why, rates, and the ways to pause and to limit a queue."""

import re

import pytest

from jobs.choices import HoldOf
from jobs.models import Hold
from jobs.services import holds

QUEUES = "/admin/instance/queues/"


@pytest.fixture
def operator(staff):
    return staff("change_maintenance")


def text_of(client, path=QUEUES):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", client.get(path).content.decode()))


def test_a_queue_on_hold_says_so_and_can_be_resumed(operator, submit, worker):
    worker(tags=["script", "gpu"])
    submit(tags=["gpu"])
    page = operator.get(QUEUES).content.decode()
    assert "holds/add/?kind=tag&amp;value=gpu" in page and "Pause…" in page and "limits/set/?pattern=tag%3Agpu" in page
    held, _ = holds.create_hold(HoldOf.TAG, "gpu", "operator:ann", "new driver")
    page = operator.get(QUEUES).content.decode()
    assert "On hold" in page and "new driver" in page and f"holds/{held.pk}/release/" in page and "Pause…" not in page
    holds.release_hold(held.pk, "operator:ann")
    assert "On hold" not in operator.get(QUEUES).content.decode()


def test_a_queue_with_some_held_jobs_counts_them(reader, submit, worker):
    worker()
    submit(name="a")
    submit(limits=["stripe"])
    holds.create_hold(HoldOf.LIMIT, "stripe", "operator:ann")
    assert "1 parked on hold" in text_of(reader)


def test_a_celery_queue_is_paused_by_its_name(operator, submit, worker):
    worker(tags=["script", "queue:mail"])
    submit(tags=["queue:mail"])
    assert "holds/add/?kind=queue&amp;value=mail" in operator.get(QUEUES).content.decode()


def test_a_queue_shows_what_was_submitted_and_ended_per_minute(reader, submit, worker, clock):
    one = worker(max_concurrent=10)
    for _ in range(10):
        submit()
    for attempt in one.claim(limit=5):
        one.start(attempt)
        one.complete(attempt)
    clock.advance(60)
    assert "2.0 submitted, → 1.0 ended a minute" in text_of(reader)
    page = reader.get(QUEUES).content.decode()
    assert "Jobs ended per minute in the last 15 minutes: at most 5" in page
    clock.advance(300)
    assert "0 submitted, → 0 ended a minute" in text_of(reader)


def test_a_hold_of_another_namespace_marks_no_queue(reader, submit, worker):
    worker()
    submit(tags=["gpu"], unmatched="wait")
    Hold.objects.create(kind="tag", value="gpu", by="operator:o", namespace="red")
    assert "On hold" not in reader.get(QUEUES).content.decode()
