"""Calls of several threads that share one statement, and so one commit."""

from collections.abc import Callable
from threading import Event, Lock
from typing import Generic, TypeVar

Said = TypeVar("Said")
Heard = TypeVar("Heard")


class Batch(Generic[Said, Heard]):
    """Calls that share a statement: those that came while the `before` was under way."""

    def __init__(self, before: "Batch[Said, Heard] | None" = None) -> None:
        self.before = before
        self.said: list[Said] = []
        self.heard: list[Heard] = []
        self.error: BaseException | None = None
        self.ended = Event()


class Together(Generic[Said, Heard]):
    """While a statement is under way, who comes meanwhile waits; the first of them then says it for all.

    `say` gets what they said, and answers each, in the same order. What it raises, each gets, and who waits, too.
    Nobody waits longer than `patience` seconds for the statement before. One that hangs costs those who are in it, who
    get TimeoutError, and nobody else: the next is said by another thread, so over another connection, and whoever comes
    after waits for that one alone.
    """

    def __init__(self, say: Callable[[list[Said]], list[Heard]], patience: float) -> None:
        self._say, self._patience = say, patience
        self._lock = Lock()
        self._open: Batch[Said, Heard] = Batch()

    def __call__(self, said: Said) -> Heard:
        with self._lock:
            batch = self._open
            place = len(batch.said)
            batch.said.append(said)
        if place == 0:
            self._lead(batch)
        elif not batch.ended.wait(2 * self._patience):
            raise TimeoutError("The statement hangs.")
        if batch.error is not None:
            raise batch.error
        return batch.heard[place]

    def _lead(self, batch: Batch[Said, Heard]) -> None:
        before, batch.before = batch.before, None
        waited = before is not None and not before.ended.is_set() and before.ended.wait(self._patience)
        with self._lock:
            self._open = Batch(batch)
        try:
            if waited and before is not None and before.error is not None:
                raise before.error  # it would fare no better, but would wait as long again
            heard = self._say(batch.said)
            if len(heard) != len(batch.said):
                raise ValueError(f"{len(heard)} answers to {len(batch.said)} calls")
            batch.heard = heard
        except BaseException as error:
            batch.error = error
        finally:
            batch.ended.set()
