"""Pool of threads that run blocking calls for an event loop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


IDLE_AFTER = 0.05
"""Seconds without a call after which a thread is idle."""


class Threads:
    """Run calls in at most `number` threads, which are started on demand. More calls wait in their order.

    The threads are daemons, so a hanging call does not keep the process from ending. A thread that becomes idle calls
    `when_idle`, for example to return its database connection to the pool. To return it after each call would cost more
    than a short call itself.
    """

    def __init__(self, number: int, name: str, when_idle: Callable[[], object] | None = None) -> None:
        self._number, self._name, self._when_idle = number, name, when_idle
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = SimpleQueue()
        self._begun = self._busy = 0

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run the call in one of the threads, and return the future of its result.

        The call runs to its end even if nothing awaits the future.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._busy += 1
        if self._begun < min(self._busy, self._number):
            self._begun += 1
            Thread(target=self._work, name=f"{self._name}-{self._begun}", daemon=True).start()
        self._calls.put((call, future))
        return future

    def _work(self) -> None:
        while True:
            call, future = self._next_call()
            result, error = None, None
            try:
                if not future.done():  # the caller cancelled before a thread was free
                    result = call()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop has ended, and so will this process
                future.get_loop().call_soon_threadsafe(self._end, future, result, error)
            del call, future, result, error

    def _next_call(self) -> "tuple[Callable[[], Any], asyncio.Future[Any]]":
        if self._when_idle is not None:
            with suppress(Empty):
                return self._calls.get(timeout=IDLE_AFTER)
            self._when_idle()
        return self._calls.get()

    def _end(self, future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
        self._busy -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
