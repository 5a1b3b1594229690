"""Lists of jobs, latest first, page by page."""

import uuid

import pytest
from django.db import connection

from jobs.models import WorkerJob
from tests.support.queries import CapturedQueries


def listed(caller, query=""):
    answer = caller.get(f"/jobs{query}")
    assert answer.status_code == 200, answer.json()
    return answer.json()


def ids(page):
    return [job["id"] for job in page["items"]]


def test_without_jobs_the_list_is_empty(submit):
    assert listed(submit.client) == {"items": [], "next": None}


def test_jobs_are_listed_latest_first_as_they_are_shown_alone(submit, worker):
    first, second = submit(), submit(payload=1)
    one = worker()
    one.complete(one.hold(), 42)
    page = listed(submit.client)
    assert ids(page) == [second["id"], first["id"]]
    assert page["items"] == [submit.client.get(f"/jobs/{job}").json() for job in ids(page)]


@pytest.mark.parametrize(("limit", "pages"), [(1, 5), (2, 3), (4, 2), (5, 1), (500, 1)])
def test_pages_hold_every_job_once_though_others_come(submit, limit, pages):
    jobs = [submit()["id"] for _ in range(5)]
    collected, query, count = [], f"?limit={limit}", 0
    while True:
        page = listed(submit.client, query)
        collected, count = collected + ids(page), count + 1
        submit()
        if page["next"] is None:
            break
        query = f"?limit={limit}&cursor={page['next']}"
    assert (collected, count) == (jobs[::-1], pages)


@pytest.mark.parametrize(("query", "names"), [
    ("", "decba"), ("?state=PENDING", "edcb"), ("?state=RUNNING", "a"), ("?state=EXPIRED", ""), ("?kind=TASK", "edcba"),
    ("?kind=TRIGGER", ""), ("?key=c", "c"), ("?key=C", ""), ("?tag=gpu", "ed"), ("?tag=python", "e"),
    ("?tag=script", "dcba"), ("?tag=gpu&state=PENDING&key=d", "d"), ("?tag=gp", ""),
])  # fmt: skip
def test_a_list_is_filtered(submit, worker, query, names):
    submit(key="a", priority=1)
    for key, more in {"b": {}, "c": {}, "d": {"tags": ["gpu"]}}.items():
        submit(key=key, **more)
    submit(key="e", tags=["gpu"], action={"type": "callable", "path": "a:b"})
    worker().hold()
    keys = "".join(job["key"] for job in listed(submit.client, query)["items"])
    assert sorted(keys) == sorted(names)
    assert keys == "".join(sorted(keys, reverse=True))


@pytest.mark.parametrize("query", [
    "limit=0", "limit=501", "limit=x", "limit=", "cursor=x", "cursor=1", "state=pending", "state=", "kind=x", "tag=",
    "key=", "nonsense=1", "key=%00", "tag=%00", "tag=" + "x" * 101,
])  # fmt: skip
def test_a_wrong_query_is_a_400_that_names_the_field(submit, query):
    answer = submit.client.get(f"/jobs?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert set(answer.json()["errors"]) == {query.partition("=")[0]}


def test_an_unknown_value_is_refused_with_the_known_ones(submit):
    (error,) = submit.client.get("/jobs?state=DONE").json()["errors"]["state"]
    assert error.startswith('"DONE" is not a valid choice. Valid choices are: ') and "COMPLETED" in error


@pytest.mark.parametrize(("role", "sees"), [("client", 0), ("viewer", 2), ("operator", 2)])
def test_a_client_lists_its_own_jobs_and_others_all(submit, api, role, sees):
    submit(key="mine"), submit()
    assert len(ids(listed(submit.client))) == 2
    assert len(ids(listed(api(role)))) == sees
    assert len(ids(listed(api(role), "?key=mine"))) == bool(sees)


def test_a_worker_lists_nothing(api, worker):
    for caller in (api("worker"), worker()):
        answer = caller.get("/jobs")
        assert (answer.status_code, answer.json()["code"]) == (403, "wrong_role")


def test_a_cursor_of_a_deleted_job_still_works(submit):
    first, second = submit(), submit()
    WorkerJob.objects.filter(pk=second["id"]).delete()
    assert ids(listed(submit.client, f"?cursor={second['id']}")) == [first["id"]]
    assert ids(listed(submit.client, f"?cursor={uuid.UUID(int=0)}")) == []


def test_a_list_costs_the_same_however_long_it_is(submit, worker):
    one = worker(max_concurrent=100)
    costs = []
    for number in (1, 10):
        for _ in range(number):
            submit()
            attempt = one.hold()
            one.complete(attempt, 1)
            one.complete(attempt, 2)
        with CapturedQueries(connection) as queries:
            assert listed(submit.client)["items"][0]["late_reports"]
        costs.append(len(queries))
    assert costs[0] == costs[1] <= 5
