"""Group commit: calls that arrive at about the same time share one SQL statement and one commit."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from controlplane.core.threads import Threads

Call = TypeVar("Call")
Answer = TypeVar("Answer")

GATHERING = 0.01
"""Default of `gathering`: after a statement has ended, waiting calls wait at most so many seconds for more calls to
join."""


class WaitingItem(NamedTuple, Generic[Call, Answer]):
    call: Call
    answer: "asyncio.Future[Answer]"


class GroupCommit(Generic[Call, Answer]):
    """Run calls in batches, one statement at a time.

    Calls that arrive while a statement runs wait and share the next statement. It starts as soon as enough calls wait:
    as many as shared the last statement, or as waited when it ended. It starts `gathering` seconds after the end of the
    last statement at the latest. It waits because callers that were just answered often call again, and a statement for
    many calls costs little more than a statement for a few. A single call does not wait.

    `run_statement` runs in one of the threads. It gets the calls and returns one answer for each, in the same order. If
    it raises an error, all these calls and all waiting calls get that error.

    A call waits at most `patience` seconds for the previous statement, and as long for its own. If a statement hangs,
    only its own calls get TimeoutError. The next statement runs in another thread and so on another connection.
    """

    def __init__(
        self,
        run_statement: Callable[[list[Call]], list[Answer]],
        patience: float,
        threads: Threads,
        gathering: float | None = None,
    ) -> None:
        self._run_statement, self._patience, self._threads = run_statement, patience, threads
        self._waiting: list[WaitingItem[Call, Answer]] = []
        self._pause = GATHERING if gathering is None else gathering
        self._likely = 1  # number of waiting calls that start a statement at once
        self._gathering: asyncio.TimerHandle | None = None
        self._under_way: asyncio.Future[list[Answer]] | None = None

    def __call__(self, call: Call) -> "asyncio.Future[Answer]":
        """Add a call, and return the future of its answer."""
        loop = asyncio.get_running_loop()
        one: WaitingItem[Call, Answer] = WaitingItem(call, loop.create_future())
        self._waiting.append(one)
        if self._under_way is None and len(self._waiting) == self._likely:
            loop.call_soon(self._run_batch)  # so that calls of the same turn of the event loop share the statement
        return one.answer

    def _run_batch(self) -> None:
        """Start one statement for all waiting calls, unless a statement is running."""
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
        self,
        batch: list[WaitingItem[Call, Answer]],
        timer: asyncio.TimerHandle,
        statement: "asyncio.Future[list[Answer]]",
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
                continue  # its caller has disconnected
            if error is None:
                one.answer.set_result(statement.result()[place])
            else:
                one.answer.set_exception(error)
        self._likely = 1 if error else len(batch) + len(self._waiting)
        if self._likely > 1:
            self._gathering = asyncio.get_running_loop().call_later(self._pause, self._run_batch)
        elif self._waiting:
            self._run_batch()


def give_up(statement: "asyncio.Future[Any]") -> None:
    if not statement.done():
        statement.set_exception(TimeoutError("The statement hangs."))
