"""Calls that share a statement: each gets its own answer, and waits for one earlier statement at most."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from controlplane.core import batching
from controlplane.core.batching import GroupCommit
from controlplane.core.threads import Threads

ENOUGH = 30.0
"""Seconds that no call should wait."""


def together(say, patience=ENOUGH):
    return GroupCommit(say, patience, Threads(4, "test"))


async def at_once(call, numbers):
    """Return the result or the error of each call."""
    return await asyncio.gather(*map(call, numbers), return_exceptions=True)


async def until(what):
    async with asyncio.timeout(ENOUGH):
        while not what():
            await asyncio.sleep(0.001)


@contextmanager
def held():
    """Yield an event that a statement waits for, so that it ends when the test lets it."""
    ends = threading.Event()
    try:
        yield ends
    finally:
        ends.set()


def test_a_single_call_runs_at_once():
    batches = []

    async def calls():
        call = together(lambda numbers: batches.append(numbers) or [number * 2 for number in numbers])
        return [await call(1), await call(2)]

    assert asyncio.run(calls()) == [2, 4]
    assert batches == [[1], [2]]


def test_who_comes_while_a_statement_is_under_way_shares_the_next():
    batches = []

    async def calls():
        with held() as ends:
            call = together(lambda numbers: batches.append(numbers) or (ends.wait(ENOUGH) and numbers))
            first = call(100)
            await until(lambda: batches)
            others = asyncio.create_task(at_once(call, range(8)))
            await asyncio.sleep(0)
            ends.set()
            return await first, await others

    assert asyncio.run(calls()) == (100, list(range(8)))
    assert batches == [[100], list(range(8))]


def test_each_of_many_gets_its_own_answer():
    async def calls():
        call = together(lambda numbers: [number * 2 for number in numbers])
        for _ in range(50):
            assert await at_once(call, range(16)) == [number * 2 for number in range(16)]

    asyncio.run(calls())


def test_what_fails_fails_for_all_who_shared_it_and_for_nobody_after():
    broken = [True]

    def say(numbers):
        if broken:
            raise ValueError("it is down")
        return numbers

    async def calls():
        call = together(say)
        assert [str(error) for error in await at_once(call, range(4))] == ["it is down"] * 4
        broken.clear()
        assert await call(7) == 7

    asyncio.run(calls())


def test_who_waits_while_it_fails_does_not_wait_as_long_again():
    batches = []

    async def calls():
        with held() as ends:

            def say(numbers):
                batches.append(numbers)
                assert ends.wait(ENOUGH)
                raise ValueError("it is down")

            call = together(say)
            first = asyncio.create_task(at_once(call, [0]))
            await until(lambda: batches)
            others = asyncio.create_task(at_once(call, range(7)))
            await asyncio.sleep(0)
            ends.set()
            return [*await first, *await others]

    assert [str(error) for error in asyncio.run(calls())] == ["it is down"] * 8
    assert batches == [[0]]


def test_a_hanging_statement_fails_only_its_calls_and_the_next_uses_another_thread():
    batches, threads = [], []

    async def calls():
        with held() as ends:

            def say(numbers):
                batches.append(numbers)
                threads.append(threading.current_thread())
                assert 0 not in numbers or ends.wait(ENOUGH)
                return numbers

            call = together(say, patience=0.2)
            hung = asyncio.create_task(at_once(call, [0]))
            await until(lambda: batches)
            assert await at_once(call, [1, 2]) == [1, 2], "after their patience with it"
            assert isinstance((await hung)[0], TimeoutError), "who is in it is not kept waiting for ever"
            again = asyncio.create_task(at_once(call, [0]))
            await until(lambda: len(batches) == 3)
            assert [await call(number) for number in (3, 4, 5)] == [3, 4, 5]
            await again

    asyncio.run(calls())
    assert batches == [[0], [1, 2], [0], [3], [4], [5]]
    assert threads[1] is not threads[0] and threads[3] not in (threads[0], threads[2])


def test_after_the_first_timeout_nobody_waits_for_the_statement_that_hangs():
    async def calls():
        with held() as ends:
            call = together(lambda numbers: (0 not in numbers or ends.wait(ENOUGH)) and numbers, patience=0.2)
            assert isinstance((await at_once(call, [0]))[0], TimeoutError)
            call._patience = 10 * ENOUGH
            async with asyncio.timeout(ENOUGH):
                assert [await call(number) for number in range(1, 100)] == list(range(1, 100))

    asyncio.run(calls())


def test_an_answered_caller_that_returns_shares_the_next_statement_with_others(monkeypatch):
    monkeypatch.setattr(batching, "GATHERING", ENOUGH)
    batches = []

    async def calls():
        with held() as ends:
            call = together(lambda numbers: batches.append(numbers) or (ends.wait(ENOUGH) and numbers))
            first = asyncio.create_task(at_once(call, range(16)))
            await until(lambda: batches)
            others = asyncio.create_task(at_once(call, range(16, 32)))
            await asyncio.sleep(0)
            ends.set()
            await at_once(call, await first)
            await others

    asyncio.run(calls())
    assert [sorted(numbers) for numbers in batches] == [list(range(16)), list(range(32))]


def test_nobody_waits_long_for_those_who_do_not_come_again():
    batches = []

    async def calls():
        call = together(lambda numbers: batches.append(numbers) or numbers)
        await at_once(call, range(16))
        async with asyncio.timeout(ENOUGH):
            assert await call(16) == 16
            assert await call(17) == 17

    asyncio.run(calls())
    assert batches == [list(range(16)), [16], [17]]


def test_one_alone_waits_for_nobody_though_there_were_many_before(monkeypatch):
    batches = []

    async def calls():
        call = together(lambda numbers: batches.append(numbers) or numbers)
        await at_once(call, range(16))
        await until(lambda: call._gathering is None)
        monkeypatch.setattr(batching, "GATHERING", ENOUGH)
        for number in range(3):
            await asyncio.wait_for(call(number), ENOUGH / 2)

    asyncio.run(calls())
    assert batches == [list(range(16)), [0], [1], [2]]


def test_one_who_goes_takes_the_answers_of_the_others_not_along():
    async def calls():
        with held() as ends:
            call = together(lambda numbers: ends.wait(ENOUGH) and numbers)
            gone, stays = call(1), call(2)
            await asyncio.sleep(0)
            gone.cancel()
            ends.set()
            return await stays

    assert asyncio.run(calls()) == 2


def test_a_missing_answer_is_an_error_and_not_somebody_elses():
    async def calls():
        await together(lambda numbers: [])(1)

    with pytest.raises(ValueError, match="0 answers to 1 calls"):
        asyncio.run(calls())


def test_an_idle_thread_says_so_once_and_still_works():
    idle = []

    async def calls():
        threads = Threads(1, "test", lambda: idle.append(threading.current_thread().name))
        assert await threads.run(lambda: list(idle)) == []
        await until(lambda: idle)
        return await threads.run(lambda: threading.current_thread().name)

    assert asyncio.run(calls()) == idle[0]
