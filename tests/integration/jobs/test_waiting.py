"""Calls that wait for the end of jobs, and the response of each of their checks."""

import uuid

import pytest

from controlplane.core.long_polls import ASKED_AGAIN, FOLLOWED, NOT_YET
from jobs.services.followed_jobs import FollowedJob, list_changed, read_followed


def test_a_job_that_has_not_ended_is_answered_with_how_long_that_may_be_kept_back(submit, worker):
    job = submit()["id"]
    answer = submit.client.get(f"/jobs/{job}?wait=30")
    assert (answer.json()["state"], answer[NOT_YET]) == ("PENDING", "30")
    assert NOT_YET not in submit.client.get(f"/jobs/{job}"), "who does not wait has it at once"
    one = worker()
    one.complete(one.hold())
    answer = submit.client.get(f"/jobs/{job}?wait=30")
    assert answer.json()["state"] == "COMPLETED" and NOT_YET not in answer


def test_asked_again_a_job_that_has_not_ended_costs_one_cheap_question(submit, django_assert_num_queries):
    job = submit()["id"]
    submit.client.client.defaults[ASKED_AGAIN] = True
    with django_assert_num_queries(2):  # one for the token, one for the state of the job
        answer = submit.client.get(f"/jobs/{job}?wait=30")
    assert (answer.json(), answer[NOT_YET]) == ({}, "30")


def test_a_wait_for_many_jobs_returns_ended_ones_and_names_foreign_ones(submit, worker, api):
    jobs = [submit()["id"] for _ in range(3)]
    question = "&".join(f"id={job}" for job in jobs)
    answer = submit.client.get(f"/jobs/wait?{question}&wait=5")
    assert (answer.json(), answer[NOT_YET]) == ({"items": [], "unknown": []}, "5")
    one = worker()
    held = one.hold()
    one.complete(held, output=[1])
    answer = submit.client.get(f"/jobs/wait?{question}&wait=5")
    assert [(item["id"], item["output"]) for item in answer.json()["items"]] == [(held["job"]["id"], [1])]
    assert NOT_YET not in answer
    assert api("client").get(f"/jobs/wait?{question}&wait=5").json() == {"items": [], "unknown": jobs}


@pytest.mark.parametrize("query", ["wait=61", "wait=-1", "wait=x", "wait=nan", "wait=1&x=1", "wait=true"])
def test_a_wrong_wait_is_a_400_with_the_reason(submit, query):
    job = submit()["id"]
    for path in (f"/jobs/{job}?{query}", f"/jobs/wait?id={job}&{query}"):
        answer = submit.client.get(path)
        assert answer.status_code == 400 and answer.json()["errors"], path


@pytest.mark.parametrize("query", ["", "id=x", "&".join(f"id={uuid.UUID(int=n)}" for n in range(101))])
def test_without_ids_with_odd_ones_or_with_too_many_it_is_a_400(submit, query):
    assert submit.client.get(f"/jobs/wait?{query}").status_code == 400


def test_a_call_for_the_log_waits_for_a_line_or_for_the_end(submit, worker, django_assert_num_queries):
    job = submit()["id"]
    one = worker()
    held = one.hold()
    path = f"/jobs/{job}/logs?wait=20"
    answer = submit.client.get(path)
    assert (answer.json()["items"], answer.json()["complete"], answer[NOT_YET]) == ([], False, "20")
    submit.client.client.defaults[ASKED_AGAIN] = True
    with django_assert_num_queries(3):  # the token, the state of the job, and a line
        assert submit.client.get(path).json() == {}
    one.report({"attempt": held["id"], "event": "LOG", "stream": "STDOUT", "lines": ["a"]})
    answer = submit.client.get(path)
    assert [item["line"] for item in answer.json()["items"]] == ["a"] and NOT_YET not in answer
    assert submit.client.get(f"{path}&cursor={answer.json()['last']}").json() == {}
    one.complete(held)
    ended = submit.client.get(f"{path}&cursor={answer.json()['last']}")
    assert (ended.json()["items"], ended.json()["complete"]) == ([], True) and NOT_YET not in ended


def test_the_log_of_an_attempt_that_has_ended_is_complete_while_its_job_continues(submit, worker):
    job = submit()["id"]
    one = worker()
    one.report({"attempt": one.hold()["id"], "event": "RELEASED", "reason": "x"})
    one.hold()
    first = submit.client.get(f"/jobs/{job}/logs?attempt=1&wait=9")
    second = submit.client.get(f"/jobs/{job}/logs?attempt=2&wait=9")
    assert (first.json()["complete"], second.json()["complete"], second[NOT_YET]) == (True, False, "9")
    assert NOT_YET not in first


def test_responses_that_wait_name_the_jobs_that_they_follow(submit, worker):
    first, second = (uuid.UUID(submit()["id"]) for _ in range(2))
    for path, jobs in {
        f"/jobs/{first}?wait=9": [FollowedJob(first)],
        f"/jobs/wait?id={first}&id={second}&wait=9": [FollowedJob(first), FollowedJob(second)],
        f"/jobs/{first}/logs?wait=9": [FollowedJob(first, after=0)],
        f"/jobs/{first}/logs?wait=9&cursor=7&attempt=2": [FollowedJob(first, after=7, attempt=2)],
    }.items():
        assert read_followed(submit.client.get(path)[FOLLOWED]) == jobs, path
        assert FOLLOWED not in submit.client.get(path.replace("wait=9", "wait=0")), path


def test_a_followed_job_has_changed_once_it_has_ended_is_gone_or_has_a_later_line(submit, worker):
    one = worker()
    jobs = [uuid.UUID(submit()["id"]) for _ in range(3)]
    held = {uuid.UUID(attempt["job"]["id"]): attempt for attempt in one.claim(3)}
    written, ended, retried = jobs
    for attempt in held.values():
        one.start(attempt)
    one.report({"attempt": held[written]["id"], "event": "LOG", "stream": "STDOUT", "lines": ["a", "b"]})
    one.complete(held[ended])
    one.report({"attempt": held[retried]["id"], "event": "RELEASED", "reason": "x"})
    last = int(submit.client.get(f"/jobs/{written}/logs").json()["last"])
    unchanged = [
        FollowedJob(written), FollowedJob(written, after=last), FollowedJob(written, after=0, attempt=2),
        FollowedJob(retried), FollowedJob(retried, after=0), FollowedJob(retried, after=0, attempt=2),
    ]  # fmt: skip
    changed = [
        FollowedJob(written, after=last - 1), FollowedJob(written, after=0), FollowedJob(written, after=0, attempt=1),
        FollowedJob(ended), FollowedJob(ended, after=0), FollowedJob(ended, after=0, attempt=9),
        FollowedJob(retried, after=0, attempt=1), FollowedJob(uuid.uuid4()), FollowedJob(uuid.uuid4(), after=5),
    ]  # fmt: skip
    assert list_changed([*unchanged, *changed]) == set(range(len(unchanged), len(unchanged) + len(changed)))
    assert list_changed([]) == set()


def test_a_call_for_events_waits_for_one(api, worker):
    viewer = api("viewer")
    last = viewer.get("/events?wait=1").json()["last"]
    answer = viewer.get(f"/events?after={last}&wait=15")
    assert (answer.json(), answer[NOT_YET]) == ({"items": [], "last": last}, "15")
    worker()
    answer = viewer.get(f"/events?after={last}&wait=15")
    assert answer.json()["items"] and NOT_YET not in answer


@pytest.mark.parametrize("query", ["wait=61", "wait=-1", "wait=x", "wait=nan"])
def test_a_wrong_wait_for_lines_or_events_is_a_400(submit, api, query):
    for answer in (submit.client.get(f"/jobs/{submit()['id']}/logs?{query}"), api("viewer").get(f"/events?{query}")):
        assert answer.status_code == 400 and answer.json()["errors"]["wait"]
