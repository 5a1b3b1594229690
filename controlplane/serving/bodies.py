"""Read request bodies before their calls take a thread. A slow sender cannot use up the limits for others.

If too much is being read at once, the slowest sender is refused, so that a new body can be read.
"""

import asyncio

from controlplane.agent.limits import BODY_LIMIT
from controlplane.core.problems import Problem
from controlplane.serving.request import PROBES, Request
from controlplane.serving.transfers import Transfer, Transfers

GRACE = 5.0
"""Seconds that any body may take to arrive."""
RATE = 32 * 1024
"""Minimum rate of a body that takes longer, in bytes per second: 1 MiB may take 37 s."""
READ_AND_DROPPED = 8 * BODY_LIMIT
"""Bytes that are read of a body that is too large, because a client that is still sending would not read the
response."""
AT_ONCE, AT_ONCE_OF_ONE = 1024, 256
"""Largest number of bodies that are read at the same time, from all callers and from one address."""
BYTES, BYTES_OF_ONE = 64 * BODY_LIMIT, 16 * BODY_LIMIT
"""Largest number of bytes that are held of unfinished bodies, from all callers and from one address."""
WITHOUT_BODY = {"GET", "HEAD", "OPTIONS", "TRACE"}


class BodyTooSlow(Problem):
    """The body arrived too slowly: it may take 5 s, and longer only at 32 KiB/s or more. Nothing was changed; retry."""

    status = 408
    code = "body_too_slow"


class Bodies:
    def __init__(self) -> None:
        self._all = Transfers(AT_ONCE, BYTES)
        self._of: dict[str, Transfers] = {}

    async def read(self, request: Request) -> bytes | None:
        """Return the body, or None if the client closed the connection before its end.

        If the body is too large, return enough of it for Django to refuse it. Raise BodyTooSlow.
        """
        if request.method in WITHOUT_BODY or request.path in PROBES:
            return b""
        own = self._of.setdefault(request.caller, Transfers(AT_ONCE_OF_ONE, BYTES_OF_ONE))
        try:
            async with asyncio.timeout(GRACE) as timeout:
                transfer = Transfer(timeout, GRACE, RATE)
                try:
                    own.add(transfer)
                    self._all.add(transfer)
                    return await self._read(request, transfer, own)
                finally:
                    self._all.remove(transfer)
                    own.remove(transfer)
        except TimeoutError:
            raise BodyTooSlow from None
        finally:
            if not own:
                self._of.pop(request.caller, None)

    async def _read(self, request: Request, transfer: Transfer, own: Transfers) -> bytes | None:
        body, size, is_complete = bytearray(), 0, False
        while not is_complete and size <= READ_AND_DROPPED:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            size += len(chunk)
            is_complete = not message.get("more_body", False)
            kept = chunk[: BODY_LIMIT + 1 - len(body)]
            body += kept
            if not is_complete:
                transfer.move(len(body))
                own.hold(transfer, len(kept))
                self._all.hold(transfer, len(kept))
        return bytes(body)
