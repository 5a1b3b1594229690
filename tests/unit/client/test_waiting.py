"""The client waits with long polls, or with polls at intervals if no answer is held back."""

import asyncio
import itertools
import threading
import uuid

import pytest

from controlplane.client import AsyncClient, Client, Refused, StillRunning
from controlplane.client.session import LONGEST_PAUSE, Polls
from tests.support.scripted import Say


def a_job(state="RUNNING", **more):
    ended = "2030-01-01T00:00:00Z" if state in ("COMPLETED", "FAILED") else None
    return {"id": str(uuid.uuid4()), "state": state, "finished_at": ended, "left_out": [], **more}


def ended(*jobs, unknown=()):
    return Say(200, {"items": list(jobs), "unknown": list(unknown)})


def test_it_waits_for_a_job_with_long_polls_until_it_has_ended(plane, client, pauses):
    job = a_job()
    done = {**job, "state": "COMPLETED", "finished_at": "2030-01-01T00:00:00Z"}
    plane.answers["GET", f"/jobs/{job['id']}"] = [Say(200, job), Say(200, job), Say(200, done)]
    assert client.wait(job) == done
    assert [call.query for call in plane.calls] == [{"wait": ["30.0"]}] * 3
    assert len(pauses) == 2  # because those answers were not held back


def test_jobs_that_have_not_ended_in_time_are_named(plane, client):
    job = a_job()
    plane.answers["GET", f"/jobs/{job['id']}"] = [Say(200, job)]
    with pytest.raises(StillRunning, match="RUNNING after 0 s") as raised:
        client.wait(job["id"], timeout=0)
    assert isinstance(raised.value, TimeoutError) and raised.value.ids == [job["id"]]
    assert plane.calls[0].query == {"wait": ["0.0"]}


def test_jobs_come_as_they_end_and_are_whole(plane, client):
    jobs = [a_job() for _ in range(3)]
    first, second, third = ({**job, "state": "COMPLETED", "finished_at": "x"} for job in jobs)
    short = {**second, "left_out": ["output"]}
    plane.answers["GET", "/jobs/wait"] = [ended(), ended(third), ended(short), ended(first)]
    plane.answers["GET", f"/jobs/{second['id']}"] = [Say(200, {**second, "output": "much"})]
    in_order = list(client.as_ended(jobs))
    assert in_order == [third, {**second, "output": "much"}, first]
    asked = [len(call.query["id"]) for call in plane.calls if call.path == "/jobs/wait"]
    assert asked == [3, 3, 2, 1]


def test_more_than_one_call_may_name_are_waited_for_too(plane, client):
    jobs = [a_job() for _ in range(250)]
    by_id = {job["id"]: {**job, "state": "COMPLETED", "finished_at": "x"} for job in jobs}
    plane.answers["GET", "/jobs/wait"] = lambda call: ended(*(by_id[id] for id in call.query["id"][-40:]))
    assert {job["id"] for job in client.as_ended(jobs)} == set(by_id)
    assert all(len(call.query["id"]) <= 100 for call in plane.calls)


def test_the_first_to_end_is_enough_for_wait_any(plane, client):
    jobs = [a_job(), a_job("FAILED")]
    plane.answers["GET", "/jobs/wait"] = [ended(jobs[1])]
    assert client.wait_any(jobs) == jobs[1]
    plane.answers["GET", "/jobs/wait"] = [ended()]
    with pytest.raises(StillRunning):
        client.wait_any(jobs, timeout=0)


def test_a_job_that_is_not_there_is_refused_and_not_waited_for(plane, client):
    job = a_job()
    plane.answers["GET", "/jobs/wait"] = [ended(unknown=[job["id"]])]
    with pytest.raises(Refused, match=job["id"]):
        list(client.as_ended([job]))


def test_an_execution_is_waited_for_by_looking_at_it(plane, client, pauses):
    execution = a_job()
    path = f"/executions/{execution['id']}"
    plane.answers["GET", path] = [Say(200, execution)] * 9 + [Say(200, {**execution, "finished_at": "x"})]
    assert client.wait_execution(execution)["finished_at"] == "x"
    assert len(pauses) == 9 and max(pauses) <= LONGEST_PAUSE and pauses[0] < 0.2


def test_pauses_grow_until_there_is_progress(pauses):
    polls = Polls(30)
    for number, _ in zip(range(8), polls, strict=False):
        polls.progress = number == 5
    assert len(pauses) == 6
    assert max(pauses[:1]) <= 0.1 and pauses[4] > 0.5 and pauses[5] <= 0.1


def test_a_log_is_followed_until_the_job_has_ended_and_no_line_comes_twice(plane, client):
    job = a_job()
    lines = [{"at": "t", "attempt": 1, "stream": "stdout", "line": str(n)} for n in range(5)]
    line_counts = itertools.chain([0, 2, 3, 3], itertools.repeat(5))

    def page(call):
        after, there = int(call.query["cursor"][0]), next(line_counts)
        last = min(after + 2, there)
        more, complete = last < there, last == len(lines)
        answer = {"items": lines[after:last], "next": str(last) if more else None, "last": str(last)}
        return Say(200, {**answer, "complete": complete})

    plane.answers["GET", f"/jobs/{job['id']}/logs"] = page
    assert [line["line"] for line in client.logs(job, follow=True)] == list("01234")


def test_events_are_followed_from_the_last_one(plane, client):
    pages = iter([[{"id": 1}, {"id": 2}], [], [{"id": 5}]])
    plane.answers["GET", "/events"] = lambda call: Say(200, {"items": next(pages), "last": ""})
    events = client.events(follow=True)
    assert [next(events)["id"] for _ in range(3)] == [1, 2, 5]
    assert [call.query["after"] for call in plane.calls] == [["0"], ["2"], ["2"]]


def test_a_log_that_is_not_followed_ends_with_what_is_there(plane, client):
    job = a_job()
    page = {"items": [{"line": "one"}], "next": None, "last": "1", "complete": False}
    plane.answers["GET", f"/jobs/{job['id']}/logs"] = [Say(200, page)]
    assert [line["line"] for line in client.logs(job, attempt=2)] == ["one"]
    assert [call.query for call in plane.calls] == [{"cursor": ["0"], "attempt": ["2"]}]


def test_the_asynchronous_client_has_the_same_calls_in_threads(plane):
    jobs = [a_job("COMPLETED"), a_job("FAILED")]
    plane.answers["POST", "/jobs"] = [Say(201, jobs[0])]
    plane.answers["GET", "/jobs/wait"] = [ended(*jobs)]
    plane.answers["GET", "/jobs"] = [Say(200, {"items": jobs, "next": None})]
    plane.answers["GET", f"/jobs/{jobs[0]['id']}"] = [Say(200, jobs[0])]

    async def use():
        async with AsyncClient(plane.url, "secret") as client:
            job = await client.submit({"type": "script", "command": "date"}, tags=["gpu"])
            assert await client.wait(job, timeout=5) == job
            assert [job async for job in client.as_ended(jobs)] == jobs
            assert [job async for job in client.jobs(state="FAILED")] == jobs
            with pytest.raises(Refused):
                await client.server(job)

    asyncio.run(use())
    assert plane.calls[0].body["tags"] == ["gpu"]


def test_a_wait_that_is_cancelled_goes_no_further(plane):
    job, asked = a_job(), threading.Event()

    def not_yet(call):
        asked.set()
        return Say(200, job)

    plane.answers["GET", f"/jobs/{job['id']}"] = not_yet

    async def use():
        client = AsyncClient(plane.url, "secret", threads=1)
        waiting = asyncio.ensure_future(client.wait(job))
        await asyncio.to_thread(asked.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # The only thread is free again.
        assert await asyncio.wait_for(client.job(job), 60) == job

    asyncio.run(use())


def test_every_call_of_the_client_is_one_of_the_asynchronous_too():
    calls = {name for name in dir(Client) if not name.startswith("_") and callable(getattr(Client, name))}
    assert calls - {"items"} <= set(dir(AsyncClient))
