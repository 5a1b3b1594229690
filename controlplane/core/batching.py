"""Calls that share one statement, and so one commit."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from controlplane.core.threads import Threads

Call = TypeVar("Call")
Answer = TypeVar("Answer")

GATHERING = 0.01
"""Seconds that calls wait at most, once a statement has ended, for those who are likely to come as well."""


class Waiting(NamedTuple, Generic[Call, Answer]):
    call: Call
    answer: "asyncio.Future[Answer]"


class GroupCommit(Generic[Call, Answer]):
    """While a statement is under way, calls that come meanwhile wait, and share the next.

    That is run as soon as as many wait as shared the last one or waited at its end, or GATHERING seconds after it: who
    was answered often calls again, and a statement for many costs little more than one for a few. One who is alone
    waits for nobody.

    `run_statement` gets the calls, in one of the threads, and answers each, in the same order. What it raises,
    each gets, and who waits, too. Nobody waits longer than `patience` seconds for the statement before, nor for the own
    one. One that hangs costs those who are in it, who get TimeoutError, and nobody else: the next is run by another
    thread, so over another connection, and whoever comes after waits for that one alone.
    """

    def __init__(self, run_statement: Callable[[list[Call]], list[Answer]], patience: float, threads: Threads) -> None:
        self._run_statement, self._patience, self._threads = run_statement, patience, threads
        self._waiting: list[Waiting[Call, Answer]] = []
        self._likely = 1  # so many are worth a statement at once
        self._gathering: asyncio.TimerHandle | None = None
        self._under_way: asyncio.Future[list[Answer]] | None = None

    def __call__(self, call: Call) -> "asyncio.Future[Answer]":
        """Its answer, once it is there."""
        loop = asyncio.get_running_loop()
        one: Waiting[Call, Answer] = Waiting(call, loop.create_future())
        self._waiting.append(one)
        if self._under_way is None and len(self._waiting) == self._likely:
            loop.call_soon(self._run_batch)  # with those who come in the same breath
        return one.answer

    def _run_batch(self) -> None:
        """Those who wait share a statement."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._under_way is not None:
            return
        self._likely = 1
        if not self._waiting:
            return
        batch, self._waiting = self._waiting, []
        statement = self._under_way = self._threads.run(partial(self._run_statement, [one.call for one in batch]))
        timer = asyncio.get_running_loop().call_later(self._patience, give_up, statement)
        statement.add_done_callback(partial(self._end, batch, timer))

    def _end(
        self, batch: list[Waiting[Call, Answer]], timer: asyncio.TimerHandle, statement: "asyncio.Future[list[Answer]]"
    ) -> None:
        timer.cancel()
        self._under_way = None
        error = statement.exception()
        if error is None and len(statement.result()) != len(batch):
            error = ValueError(f"{len(statement.result())} answers to {len(batch)} calls")
        if error is not None and not isinstance(error, TimeoutError):
            batch, self._waiting = [*batch, *self._waiting], []
        for place, one in enumerate(batch):
            if one.answer.done():
                continue  # its caller has gone
            if error is None:
                one.answer.set_result(statement.result()[place])
            else:
                one.answer.set_exception(error)
        self._likely = 1 if error else len(batch) + len(self._waiting)
        if self._likely > 1:
            self._gathering = asyncio.get_running_loop().call_later(GATHERING, self._run_batch)
        elif self._waiting:
            self._run_batch()


def give_up(statement: "asyncio.Future[Any]") -> None:
    if not statement.done():
        statement.set_exception(TimeoutError("The statement hangs."))
