"""Threads that work for an event loop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """At most `number` of them, each begun when it is needed first; calls that find none free wait in their order.

    Daemons: one that hangs keeps no process from ending.
    """

    def __init__(self, number: int, name: str) -> None:
        self._number, self._name = number, name
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = SimpleQueue()
        self._begun = self._busy = 0

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """What the call returns, or raises, in one of the threads. It goes on though nobody awaits its end."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._busy += 1
        if self._begun < min(self._busy, self._number):
            self._begun += 1
            Thread(target=self._work, name=f"{self._name}-{self._begun}", daemon=True).start()
        self._calls.put((call, future))
        return future

    def _work(self) -> None:
        while True:
            call, future = self._calls.get()
            try:
                result, error = call(), None
            except BaseException as raised:
                result, error = None, raised
            with suppress(RuntimeError):  # the loop has ended, and this process does
                future.get_loop().call_soon_threadsafe(self._end, future, result, error)
            del call, future, result, error

    def _end(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
