"""Waiting calls hold no thread: they are asked again until their answer has come or their time is over."""

import asyncio
import uuid
from types import SimpleNamespace

import pytest
from django.db import DatabaseError

from controlplane.core.long_polls import FOLLOWED, NOT_YET
from controlplane.serving import follows, waits
from controlplane.serving.answers import Answer
from controlplane.serving.follows import Follows
from controlplane.serving.waits import Waits
from jobs.services.followed_jobs import FollowedJob, write_followed


def kept_back(seconds, body=b"not yet"):
    return Answer(200, [(NOT_YET, str(seconds)), ("Content-Type", "application/json")], body)


ENDED = Answer(200, [("Content-Type", "application/json")], b"ended")


async def never():
    await asyncio.Event().wait()


class Asked:
    """Sequence of answers; the last one is repeated. It records which checks were repeated checks."""

    def __init__(self, *answers):
        self.answers, self.again = list(answers), []

    async def __call__(self, is_asked_again):
        self.again.append(is_asked_again)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(waits, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(waits, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(follows, "FIRST_INTERVAL", 0.001)
    monkeypatch.setattr(follows, "LOOK_INTERVAL", 0.002)


def test_what_need_not_be_kept_back_is_answered_at_once():
    asked = Asked(ENDED)
    assert asyncio.run(Waits().answer("a", asked, never)) == ENDED
    assert asked.again == [False]


def test_it_is_asked_again_until_it_has_come():
    asked = Asked(kept_back(60), kept_back(60), kept_back(60), ENDED)
    assert asyncio.run(Waits().answer("a", asked, never)) == ENDED
    assert asked.again == [False, True, True, True]


def test_who_has_waited_enough_has_the_answer_of_now_without_the_mark():
    asked = Asked(kept_back(0.01))
    answer = asyncio.run(Waits().answer("a", asked, never))
    assert answer == ENDED._replace(body=b"not yet")
    assert not asked.again[0] and not asked.again[-1] and len(asked.again) > 1


def test_a_wait_that_ends_during_a_repeated_check_gets_the_complete_answer(monkeypatch):
    now, asked = [0.0], []
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def answer_now(is_asked_again):
        asked.append(is_asked_again)
        now[0] += 10 * is_asked_again
        return kept_back(5, b"" if is_asked_again else b"not yet")

    assert asyncio.run(Waits().answer("a", answer_now, never)) == ENDED._replace(body=b"not yet")
    assert asked == [False, True, False]


def test_nobody_is_asked_for_a_caller_who_has_gone():
    async def gone():
        return None

    asked = Asked(kept_back(60))
    assert asyncio.run(Waits().answer("a", asked, gone)) is None
    assert asked.again == [False]


@pytest.mark.parametrize(("limit", "others"), [("WAITS_OF_ONE", "a"), ("WAITS", "b")])
def test_a_call_beyond_the_limit_of_waits_is_answered_at_once(monkeypatch, limit, others):
    monkeypatch.setattr(waits, limit, 1)

    async def both():
        waiting = Waits()
        first = asyncio.ensure_future(waiting.answer(others, Asked(kept_back(60)), never))
        await asyncio.sleep(0.01)
        second = Asked(kept_back(60), ENDED)
        assert await waiting.answer("a", second, never) == ENDED._replace(body=b"not yet")
        first.cancel()
        await asyncio.wait([first])
        third = Asked(kept_back(60), ENDED)
        assert await waiting.answer("a", third, never) == ENDED

    asyncio.run(both())


LINE, END = FollowedJob(uuid.uuid4(), after=7), FollowedJob(uuid.uuid4())


def followed(seconds, *jobs, body=b"not yet"):
    answer = kept_back(seconds, body)
    return answer._replace(headers=[*answer.headers, (FOLLOWED, write_followed(jobs))])


class Look:
    """Look at followed jobs. It finds what the caller put into `changed`, and records the jobs of each look."""

    def __init__(self):
        self.changed, self.looks = set(), []

    def __call__(self, jobs):
        self.looks.append(jobs)
        return {place for place, job in enumerate(jobs) if job in self.changed}


def test_a_call_that_follows_a_job_is_checked_again_only_when_the_job_has_changed():
    async def wait(job):
        look, asked = Look(), Asked(followed(60, job), ENDED)
        answer = asyncio.ensure_future(Waits(Follows(look)).answer("a", asked, never))
        while len(look.looks) < 5:
            await asyncio.sleep(0.001)
        assert asked.again == [False] and look.looks[0] == [job]
        look.changed.add(job)
        assert await answer == ENDED
        assert asked.again == [False, True]

    for job in (LINE, END):
        asyncio.run(wait(job))


def test_a_quiet_log_keeps_its_first_response_but_a_job_gets_a_complete_one():
    async def wait(job):
        asked = Asked(followed(0.01, job), ENDED)
        return await Waits(Follows(Look())).answer("a", asked, never), asked.again

    assert asyncio.run(wait(LINE)) == (ENDED._replace(body=b"not yet"), [False])
    assert asyncio.run(wait(END)) == (ENDED, [False, False])


def test_one_look_is_for_all_calls_and_wakes_only_those_whose_job_has_changed():
    async def wait():
        look = Look()
        waiting = Waits(Follows(look))
        asked = [Asked(followed(60, LINE), ENDED), Asked(followed(60, END, LINE), ENDED), Asked(followed(60, END))]
        calls = [asyncio.ensure_future(waiting.answer("a", one, never)) for one in asked]
        while not any(len(jobs) == 4 for jobs in look.looks):
            await asyncio.sleep(0.001)
        look.changed.add(LINE)
        assert await asyncio.gather(*calls[:2]) == [ENDED, ENDED]
        assert [one.again for one in asked] == [[False, True], [False, True], [False]]
        waiting.close()
        assert (await calls[2]).body == b"not yet"

    asyncio.run(wait())


def test_a_changed_job_whose_call_still_waits_is_checked_at_intervals():
    look, asked = Look(), Asked(followed(60, LINE), kept_back(60), kept_back(60), ENDED)
    look.changed.add(LINE)
    assert asyncio.run(Waits(Follows(look)).answer("a", asked, never)) == ENDED
    assert asked.again == [False, True, True, True]


@pytest.mark.parametrize(("limit", "others"), [("FOLLOWED_OF_ONE", "a"), ("FOLLOWED", "b")])
def test_a_call_that_would_follow_too_many_jobs_is_checked_at_intervals(monkeypatch, limit, others):
    monkeypatch.setattr(follows, limit, 2)

    async def wait():
        look = Look()
        waiting = Waits(Follows(look))
        first = asyncio.ensure_future(waiting.answer(others, Asked(followed(60, LINE, END)), never))
        await asyncio.sleep(0.01)
        second = Asked(followed(60, LINE), kept_back(60), ENDED)
        assert await waiting.answer("a", second, never) == ENDED
        assert all(len(jobs) == 2 for jobs in look.looks)
        first.cancel()
        await asyncio.wait([first])

    asyncio.run(wait())


def test_an_error_of_the_database_ends_no_look():
    look, failed = Look(), []

    def look_once_in_vain(jobs):
        if not failed:
            failed.append(jobs)
            raise DatabaseError
        return look(jobs)

    look.changed.add(LINE)
    asked = Asked(followed(60, LINE), ENDED)
    assert asyncio.run(Waits(Follows(look_once_in_vain)).answer("a", asked, never)) == ENDED
    assert failed


def test_an_equal_call_for_a_log_without_a_new_line_is_not_checked_again(monkeypatch):
    async def wait():
        look, asked = Look(), Asked(followed(0.01, LINE), ENDED)
        waiting = Waits(Follows(look))
        first = await waiting.answer("a", asked, never, b"call")
        assert (await waiting.answer("a", asked, never, b"call"), asked.again) == (first, [False])
        assert await waiting.answer("a", Asked(ENDED), never, b"another call") == ENDED
        look.changed.add(LINE)
        assert await waiting.answer("a", asked, never, b"call") == ENDED
        assert await waiting.answer("a", asked, never, b"call") == ENDED
        assert asked.again[0:2] == [False, True]

    asyncio.run(wait())


def test_the_check_of_a_call_counts_for_a_limited_time(monkeypatch):
    monkeypatch.setattr(waits, "CHECKED_WITHIN", 0.0)

    async def wait():
        waiting, asked = Waits(Follows(Look())), Asked(followed(0.01, LINE), followed(0.01, LINE), ENDED)
        return [await waiting.answer("a", asked, never, b"call") for _ in range(3)][-1], asked.again

    assert asyncio.run(wait()) == (ENDED, [False] * 3)
