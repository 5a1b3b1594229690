"""Let calls wait for a change. Each waiting call holds its socket, and takes a thread only while it is checked.

controlplane.core.long_polls defines which responses may be held back.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from controlplane.core.long_polls import NOT_YET
from controlplane.serving.answers import Answer

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two checks. Each pause is 1.5 times the previous pause."""
WAITS, WAITS_OF_ONE = 1000, 100
"""Largest number of calls that wait at the same time, of all callers and of one. More calls are answered at once."""


class Waits:
    def __init__(self) -> None:
        self._of: Counter[str] = Counter()
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Answer all waiting calls, because this process ends."""
        self._closed.set()

    async def answer(
        self,
        key: str,
        answer_now: Callable[[bool], Awaitable[Answer | None]],
        gone: Callable[[], Awaitable[None]],
    ) -> Answer | None:
        """Wait as long as the call allows, then return its response. Return None if the client has disconnected.

        `answer_now(is_asked_again)` answers the call at once.
        """
        began, pause = time.monotonic(), FIRST_PAUSE
        answer = await answer_now(False)
        wait = seconds_kept_back(answer)
        if not wait or self._of.total() >= WAITS or self._of[key] >= WAITS_OF_ONE:
            return without_mark(answer)
        self._of[key] += 1
        leaves, closes = asyncio.ensure_future(gone()), asyncio.ensure_future(self._closed.wait())
        try:
            # The time may run out during a repeated check. The response to such a check may only mean "not yet". So the
            # last check is always a complete one.
            while True:
                left = max(0.0, began + wait - time.monotonic())
                await asyncio.wait([leaves, closes], timeout=min(pause, left), return_when=asyncio.FIRST_COMPLETED)
                if leaves.done():
                    return None
                pause = min(1.5 * pause, LONGEST_PAUSE)
                is_last = closes.done() or time.monotonic() - began >= wait
                answer = await answer_now(not is_last)
                if is_last or not seconds_kept_back(answer):
                    return without_mark(answer)
        finally:
            leaves.cancel()
            closes.cancel()
            self._of[key] -= 1
            self._of += Counter()  # remove callers that have no waiting call


def seconds_kept_back(answer: Answer | None) -> float:
    return next((float(value) for name, value in answer.headers if name == NOT_YET), 0.0) if answer else 0.0


def without_mark(answer: Answer | None) -> Answer | None:
    return answer and answer._replace(headers=[pair for pair in answer.headers if pair[0] != NOT_YET])
