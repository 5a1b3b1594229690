"""Calls that share one statement, and so one commit."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from controlplane.core.threads import Threads

Call = TypeVar("Call")
Answer = TypeVar("Answer")


class CallBatch(Generic[Call, Answer]):
    """Calls that share a statement: those that came while the one `before` was under way."""

    def __init__(self, before: "CallBatch[Call, Answer] | None" = None) -> None:
        self.before = before
        self.calls: list[Call] = []
        self.answers: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()


class GroupCommit(Generic[Call, Answer]):
    """While a statement is under way, calls that come meanwhile wait, and share the next.

    `say` gets what they said, in one of the threads, and answers each, in the same order. What it raises, each gets,
    and who waits, too. Nobody waits longer than `patience` seconds for the statement before, nor for the own one. One
    that hangs costs those who are in it, who get TimeoutError, and nobody else: the next is said by another thread, so
    over another connection, and whoever comes after waits for that one alone.
    """

    def __init__(self, run_statement: Callable[[list[Call]], list[Answer]], patience: float, threads: Threads) -> None:
        self._run_statement, self._patience, self._threads = run_statement, patience, threads
        self._open: CallBatch[Call, Answer] | None = None
        self._leading: set[asyncio.Task[None]] = set()

    async def __call__(self, call: Call) -> Answer:
        if self._open is None:
            self._open = CallBatch()
        batch, place = self._open, len(self._open.calls)
        batch.calls.append(call)
        if place == 0:
            task = asyncio.create_task(self._run_batch(batch))
            self._leading.add(task)
            task.add_done_callback(self._leading.discard)
        # One who is cancelled does not take the answers of the others along.
        return (await asyncio.shield(batch.answers))[place]

    async def _run_batch(self, batch: CallBatch[Call, Answer]) -> None:
        before, batch.before = batch.before, None
        if before is not None and not before.answers.done():
            await asyncio.wait([before.answers], timeout=self._patience)
            error = before.answers.exception() if before.answers.done() else None
        else:
            error = None
        self._open = CallBatch(batch)
        if error is None or isinstance(error, TimeoutError):
            saying = self._threads.run(partial(self._run_statement, batch.calls))
            await asyncio.wait([saying], timeout=self._patience)
            if not saying.done():
                error = TimeoutError("The statement hangs.")
            elif (error := saying.exception()) is None:
                answers = saying.result()
                if len(answers) == len(batch.calls):
                    batch.answers.set_result(answers)
                    return
                error = ValueError(f"{len(answers)} answers to {len(batch.calls)} calls")
        batch.answers.set_exception(error)
        batch.answers.exception()  # whoever asked may have gone
