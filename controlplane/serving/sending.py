"""Send responses to clients that may read slowly or not at all."""

import asyncio
from collections import Counter
from contextlib import suppress

from controlplane.core.problems import Problem
from controlplane.serving.answers import Answer
from controlplane.serving.request import Send
from controlplane.serving.transfers import Transfer, Transfers

CHUNK = 64 * 1024
"""Bytes sent at once. A response that is larger counts for the limits until its client has read it."""
GRACE = 10.0
"""Seconds that a client may take to read any response."""
RATE = 32 * 1024
"""Minimum rate in bytes per second at which a client must read a response that takes longer."""
UNREAD_AT_ONCE, UNREAD, UNREAD_OF_ONE = 4096, 256 * 1024 * 1024, 32 * 1024 * 1024
"""Limits of large responses that are not read yet: their number, their bytes, and the bytes for one caller."""
WAIT = GRACE + 5.0
"""Seconds that a call waits until the same caller has read earlier responses."""


class AnswersUnread(Problem):
    """You have not read too many earlier responses yet. Read them to the end, then try again."""

    status = 503
    code = "answers_unread"


class Sender:
    def __init__(self) -> None:
        self._transfers = Transfers(UNREAD_AT_ONCE, UNREAD)
        self._unread_by: Counter[str] = Counter()
        self._has_ended = asyncio.Condition()

    async def wait_for_reader(self, key: str) -> None:
        """Wait until the caller `key` has read enough of earlier responses. Raise AnswersUnread after WAIT seconds."""
        if self._unread_by[key] < UNREAD_OF_ONE:
            return
        try:
            async with asyncio.timeout(WAIT), self._has_ended:
                await self._has_ended.wait_for(lambda: self._unread_by[key] < UNREAD_OF_ONE)
        except TimeoutError:
            raise AnswersUnread from None

    async def send(self, key: str, answer: Answer, send: Send) -> None:
        """Send a response. If its client reads too slowly, stop in the middle; granian then closes the connection."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        is_large = len(answer.body) > CHUNK
        if is_large and not any(name.lower() == "content-length" for name, _ in answer.headers):
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if answer.path is not None:
            await send({"type": "http.response.pathsend", "path": answer.path})
        elif is_large:
            with suppress(TimeoutError):
                await self._send_large(key, answer.body, send)
        else:
            await send({"type": "http.response.body", "body": answer.body})

    async def _send_large(self, key: str, body: bytes, send: Send) -> None:
        async with asyncio.timeout(GRACE) as timeout:
            transfer = Transfer(timeout, GRACE, RATE)
            self._transfers.add(transfer, len(body))
            self._unread_by[key] += len(body)
            try:
                for start in range(0, len(body), CHUNK):
                    end = start + CHUNK
                    await send({"type": "http.response.body", "body": body[start:end], "more_body": end < len(body)})
                    transfer.move(end)
            finally:
                self._transfers.remove(transfer)
                self._unread_by[key] -= len(body)
                self._unread_by += Counter()  # remove callers that have read everything
                async with self._has_ended:
                    self._has_ended.notify_all()
