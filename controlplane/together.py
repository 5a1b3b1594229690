"""Calls of several threads that share one statement, and so one commit."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

Said = TypeVar("Said")
Heard = TypeVar("Heard")


@dataclass
class Call(Generic[Said, Heard]):
    said: Said
    heard: Heard | None = None
    error: BaseException | None = None
    is_done: bool = False


class Together(Generic[Said, Heard]):
    """While a statement is under way, who comes meanwhile waits; the first of them then says it for all.

    `say` gets what they said, and answers each, in the same order. What it raises, each gets, and who waits, too. Who
    has waited for `patience` seconds gets TimeoutError: a statement that hangs must not hang everybody.
    """

    def __init__(self, say: Callable[[list[Said]], list[Heard]], patience: float) -> None:
        self._say, self._patience = say, patience
        self._turn = Lock()
        self._waiting: deque[Call[Said, Heard]] = deque()

    def __call__(self, said: Said) -> Heard:
        call: Call[Said, Heard] = Call(said)
        self._waiting.append(call)
        if not self._turn.acquire(timeout=self._patience):
            call.is_done = True  # by somebody else, perhaps: not to be said once more, and late, by whoever is next
            raise TimeoutError
        try:
            if not call.is_done:
                self._answer(self._drain())
        finally:
            self._turn.release()
        if call.error is not None:
            raise call.error
        return call.heard  # type: ignore[return-value]

    def _answer(self, calls: list[Call[Said, Heard]]) -> None:
        try:
            heard = self._say([call.said for call in calls])
            for call, answer in zip(calls, heard, strict=True):
                call.heard = answer
        except BaseException as error:
            # Who waits already would fare no better, but would wait as long again.
            calls += self._drain()
            for call in calls:
                call.error = error
        for call in calls:
            call.is_done = True

    def _drain(self) -> list[Call[Said, Heard]]:
        drained = [self._waiting.popleft() for _ in range(len(self._waiting))]
        return [call for call in drained if not call.is_done]
