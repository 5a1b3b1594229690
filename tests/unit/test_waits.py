"""Waiting calls hold no thread: they are asked again until their answer has come or their time is over."""

import asyncio
from types import SimpleNamespace

import pytest

from controlplane.core.long_polls import NOT_YET
from controlplane.serving import waits
from controlplane.serving.answers import Answer
from controlplane.serving.waits import Waits


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
