"""Calls of several threads that share one statement, and so one commit."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

Said = TypeVar("Said")
Heard = TypeVar("Heard")


class Together(Generic[Said, Heard]):
    """While a statement is under way, who comes meanwhile waits; the first of them then says it for all.

    `say` gets what they said, and answers each, in the same order. What it raises, each gets, and who waits, too. Who
    has waited for `patience` seconds gets TimeoutError: a statement that hangs must not hang everybody.
    """

    def __init__(self, say: Callable[[list[Said]], list[Heard]], patience: float) -> None:
        self._say, self._patience = say, patience
        self._turn = Lock()
        self._waiting: deque[tuple[Said, Future[Heard]]] = deque()

    def __call__(self, said: Said) -> Heard:
        answer: Future[Heard] = Future()
        self._waiting.append((said, answer))
        if not self._turn.acquire(timeout=self._patience):
            answer.cancel()  # not to be said after all, and late, by whoever is next
            raise TimeoutError
        try:
            if not answer.done():
                self._say_all()
        finally:
            self._turn.release()
        return answer.result()

    def _say_all(self) -> None:
        calls = self._drain()
        try:
            heard = self._say([said for said, _ in calls])
            answered = list(zip(calls, heard, strict=True))
        except BaseException as error:
            # Who waits already would fare no better, but would wait as long again.
            for _, answer in calls + self._drain():
                answer.set_exception(error)
        else:
            for (_, answer), row in answered:
                answer.set_result(row)

    def _drain(self) -> list[tuple[Said, Future[Heard]]]:
        drained = [self._waiting.popleft() for _ in range(len(self._waiting))]
        return [(said, answer) for said, answer in drained if answer.set_running_or_notify_cancel()]
