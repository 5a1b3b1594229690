"""Let calls wait for a change. Each waiting call holds its socket, and takes a thread only while it is checked.

controlplane.core.long_polls defines which responses may be held back. A call that follows jobs is checked again only
when one of them has changed. Other calls are checked at intervals.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from controlplane.core.long_polls import FOLLOWED, NOT_YET
from controlplane.serving.answers import Answer
from controlplane.serving.follows import Follows
from jobs.services.followed_jobs import FollowedJob, read_followed

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two checks. Each pause is 1.5 times the previous pause."""
WAITS, WAITS_OF_ONE = 1000, 100
"""Largest number of calls that wait at the same time, of all callers and of one. More calls are answered at once.

Calls that follow jobs have limits of their own."""

CHECKED_WITHIN, REMEMBERED = 300.0, 5_000
"""Seconds for which the check of a call by Django counts for equal calls, and number of calls that are remembered."""

AnswerNow = Callable[[bool], Awaitable[Answer | None]]
"""Function that answers the call at once. Its argument is True for a repeated check."""


class Waits:
    def __init__(self, follows: Follows | None = None) -> None:
        self._of: Counter[str] = Counter()
        self._closed = asyncio.Event()
        self._follows = follows or Follows()
        # Responses to calls that follow a log, each with the time of the check by Django.
        self._unchanged: OrderedDict[bytes, tuple[Answer, float]] = OrderedDict()

    def close(self) -> None:
        """Answer all waiting calls, because this process ends."""
        self._closed.set()

    async def answer(
        self, key: str, answer_now: AnswerNow, gone: Callable[[], Awaitable[None]], call: bytes = b""
    ) -> Answer | None:
        """Wait as long as the call allows, then return its response. Return None if the client has disconnected.

        `call` identifies the call with its credentials. An equal call that follows a log gets no new first check if
        the last one found no line, because only a change of the log can give it another response.
        """
        began = time.monotonic()
        answer, checked_at = self._unchanged.pop(call, (None, 0.0))
        if answer is None or began - checked_at > CHECKED_WITHIN:
            answer, checked_at = await answer_now(False), began
        wait = seconds_kept_back(answer)
        if not wait:
            return without_mark(answer)
        jobs = jobs_followed(answer)
        with self._follows.follow(key, jobs) as changed:
            if changed is None and (self._of.total() >= WAITS or self._of[key] >= WAITS_OF_ONE):
                return without_mark(answer)
            self._of[key] += changed is None
            leaves: asyncio.Future[Any] = asyncio.ensure_future(gone())
            closes: asyncio.Future[Any] = asyncio.ensure_future(self._closed.wait())
            try:
                if changed is not None:
                    left = max(0.0, began + wait - time.monotonic())
                    await asyncio.wait([leaves, closes, changed], timeout=left, return_when=asyncio.FIRST_COMPLETED)
                    if leaves.done():
                        return None
                    if not changed.done() and all(job.after is not None for job in jobs):
                        if call and answer is not None:
                            self._unchanged[call] = answer, checked_at
                            if len(self._unchanged) > REMEMBERED:
                                self._unchanged.popitem(last=False)
                        return without_mark(answer)  # there is no new line, so the first response is still right
                return await self._ask_again(began + wait, answer_now, leaves, closes, begins_now=changed is not None)
            finally:
                leaves.cancel()
                closes.cancel()
                self._of[key] -= changed is None
                self._of += Counter()  # remove callers that have no waiting call

    async def _ask_again(
        self,
        until: float,
        answer_now: AnswerNow,
        leaves: "asyncio.Future[Any]",
        closes: "asyncio.Future[Any]",
        *,
        begins_now: bool,
    ) -> Answer | None:
        """Ask at intervals until the response is not held back, or until the time `until`. Return the last response.

        The time may run out during a repeated check. The response to such a check may only mean "not yet". So the last
        check is always a complete one.
        """
        pause = 0.0 if begins_now else FIRST_PAUSE
        while True:
            left = max(0.0, until - time.monotonic())
            await asyncio.wait([leaves, closes], timeout=min(pause, left), return_when=asyncio.FIRST_COMPLETED)
            if leaves.done():
                return None
            pause = min(max(FIRST_PAUSE, 1.5 * pause), LONGEST_PAUSE)
            is_last = closes.done() or time.monotonic() >= until
            answer = await answer_now(not is_last)
            if is_last or not seconds_kept_back(answer):
                return without_mark(answer)


def seconds_kept_back(answer: Answer | None) -> float:
    return next((float(value) for name, value in answer.headers if name == NOT_YET), 0.0) if answer else 0.0


def without_mark(answer: Answer | None) -> Answer | None:
    return answer and answer._replace(headers=[pair for pair in answer.headers if pair[0] not in (NOT_YET, FOLLOWED)])


def jobs_followed(answer: Answer | None) -> list[FollowedJob]:
    text = next((value for name, value in answer.headers if name == FOLLOWED), "") if answer else ""
    return read_followed(text) if text else []
