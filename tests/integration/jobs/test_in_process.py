"""Code of a host project submits jobs in its own transaction: they exist if and only if it commits."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone
from rest_framework.serializers import ValidationError

from controlplane.agent.limits import BODY_LIMIT
from jobs.errors import KeyTaken, NoFreshWorkers
from jobs.in_process import submit, submit_many
from jobs.models import WorkerJob
from liveness.models import PROJECT_DIGEST, ApiToken
from tests.support.queries import CapturedQueries

SCRIPT = {"type": "script", "command": "true"}


class Undone(Exception):
    pass


def test_a_job_is_there_when_its_transaction_has_committed(committed, threads):
    with transaction.atomic():
        job = submit(SCRIPT, payload={"order": 7}, tags=["b", "a"], priority=5)
        assert threads(WorkerJob.objects.filter(pk=job).exists).result() is False, "for nobody else, before"
    job_now = threads(lambda: WorkerJob.objects.get(pk=job)).result()
    assert (job_now.state, job_now.payload, job_now.tags, job_now.priority) == ("PENDING", {"order": 7}, ["a", "b"], 5)


def test_a_job_of_a_transaction_that_is_rolled_back_never_was(committed):
    with pytest.raises(Undone), transaction.atomic():
        submit(SCRIPT)
        submit({"type": "execution", "name": "n", "steps": [{"key": "a", "action": SCRIPT}]})
        raise Undone
    assert not WorkerJob.objects.exists()


def test_a_worker_is_given_no_job_before_its_transaction_commits(committed, threads):
    one = committed()
    with transaction.atomic():
        job = submit(SCRIPT)
        assert threads(one.claim).result() == []
    (claimed,) = one.claim()
    assert claimed["job"]["id"] == str(job)


def test_what_is_submitted_is_what_the_api_would_have_stored(db, submit, clock):
    from jobs import in_process

    fields = {"action": SCRIPT, "payload": [1], "tags": ["x"], "max_retries": 2, "available_at": timezone.now()}
    over_http = WorkerJob.objects.get(pk=submit(**{**fields, "available_at": fields["available_at"].isoformat()})["id"])
    here = WorkerJob.objects.get(pk=in_process.submit(**fields))
    differ = {"id", "owner", "created_at", "pending_observed"}
    for field in WorkerJob._meta.fields:
        assert field.name in differ or getattr(here, field.attname) == getattr(over_http, field.attname), field.name


def test_many_are_stored_all_or_none(db):
    first, second = submit_many([{"action": SCRIPT, "key": "a"}, {"action": SCRIPT, "key": "b"}])
    assert [WorkerJob.objects.get(pk=job).key for job in (first, second)] == ["a", "b"]
    with pytest.raises(KeyTaken):
        submit_many([{"action": SCRIPT}, {"action": SCRIPT, "priority": 1, "key": "a"}])
    assert WorkerJob.objects.count() == 2


def test_the_same_key_again_is_the_same_job(db):
    assert submit(SCRIPT, key="order 7") == submit(SCRIPT, key="order 7")
    with pytest.raises(KeyTaken):
        submit(SCRIPT, payload=1, key="order 7")


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"action": {"type": "script"}}, "action"),
        ({"action": SCRIPT, "priority": 1001}, "priority"),
        ({"action": SCRIPT, "prioriti": 1}, "prioriti"),
        ({"action": SCRIPT, "payload": "x" * BODY_LIMIT}, "payload"),
        ({"action": SCRIPT, "available_at": timezone.now(), "good_until": timezone.now() - timedelta(1)}, "good_until"),
    ],
)
def test_content_that_the_api_refuses_is_refused_with_the_place(db, fields, where):
    with pytest.raises(ValidationError) as refused:
        submit(**fields)
    assert where in refused.value.detail
    assert not WorkerJob.objects.exists()


def test_a_missing_required_worker_refuses_the_job_not_the_transaction(db):
    with transaction.atomic():
        with pytest.raises(NoFreshWorkers):
            submit(SCRIPT, require_worker=True)
        submit(SCRIPT)
    assert WorkerJob.objects.count() == 1


def test_a_job_may_be_of_any_namespace_that_is_a_name(db):
    here, elsewhere = submit(SCRIPT, key="k"), submit_many([{"action": SCRIPT}], namespace="red")[0]
    assert [WorkerJob.objects.get(pk=job).namespace for job in (here, elsewhere)] == ["default", "red"]
    with pytest.raises(KeyTaken):
        submit(SCRIPT, key="k", namespace="red")
    for name in ("", "two\nlines", "x" * 91):
        with pytest.raises(ValidationError) as refused:
            submit(SCRIPT, namespace=name)
        assert list(refused.value.detail) == ["namespace"]
    assert WorkerJob.objects.count() == 2


def test_the_project_may_have_as_many_jobs_that_wait_as_it_likes(db, settings):
    settings.JOBS = {"WAITING_LIMIT": 1}
    submit_many([{"action": SCRIPT}] * 3)
    submit(SCRIPT)
    assert WorkerJob.objects.count() == 4


def test_they_have_one_owner_that_no_token_is(db, api):
    submit(SCRIPT)
    submit(SCRIPT)
    assert ApiToken.objects.filter(workerjob__isnull=False).distinct().get().digest == PROJECT_DIGEST
    assert api("client").get("/jobs").json()["items"] == [], "a client sees its own"
    assert len(api("viewer").get("/jobs").json()["items"]) == 2


def test_a_submission_is_two_statements_in_the_transaction_of_its_caller(db):
    submit(SCRIPT)
    with CapturedQueries(connection) as queries, transaction.atomic():
        submit(SCRIPT)
    statements = [query["sql"] for query in queries.captured_queries if "savepoint" not in query["sql"].lower()]
    assert len(statements) == 2, statements
