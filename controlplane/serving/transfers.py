"""Request and response bodies in transfer. Limits keep slow clients from using up the memory that others need.

A client must keep a minimum rate: each transferred byte extends its deadline. So the transfer with the earliest
deadline is the slowest. If a limit is reached, the slowest transfer is ended to make room for a new transfer.
"""

import asyncio


class Transfer:
    """Request or response body in transfer.

    It may pause for less than `grace` seconds, and must keep `rate` bytes/s after the first `grace` seconds. `timeout`
    is the asyncio timeout around the transfer.
    """

    def __init__(self, timeout: asyncio.Timeout, grace: float, rate: float) -> None:
        self._timeout, self._grace, self._rate = timeout, grace, rate
        self._end_of_grace = self.deadline = asyncio.get_running_loop().time() + grace

    def move(self, total: int) -> None:
        """Extend the deadline after `total` bytes have moved since the beginning."""
        pause_over = asyncio.get_running_loop().time() + self._grace
        self.deadline = min(self._end_of_grace + total / self._rate, pause_over)
        if not self._timeout.expired():
            self._timeout.reschedule(self.deadline)

    def end(self) -> None:
        """End the transfer now."""
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())


class Transfers:
    """Set of transfers with two limits: their number, and the bytes that they hold in memory."""

    def __init__(self, number_limit: int, bytes_limit: int) -> None:
        self._number_limit, self._bytes_limit = number_limit, bytes_limit
        self._held: dict[Transfer, int] = {}
        self.held = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, transfer: Transfer, size: int = 0) -> None:
        """Count a transfer that holds `size` bytes."""
        self._held[transfer] = 0
        self.hold(transfer, size)

    def hold(self, transfer: Transfer, size: int) -> None:
        """Count `size` more bytes, and end the slowest transfers while the limits are exceeded."""
        if transfer in self._held:
            self._held[transfer] += size
            self.held += size
        while len(self._held) > self._number_limit or self.held > self._bytes_limit:
            slowest = min(self._held, key=lambda one: one.deadline)
            slowest.end()
            self.remove(slowest)

    def remove(self, transfer: Transfer) -> None:
        """Stop counting a transfer, if it still counts."""
        self.held -= self._held.pop(transfer, 0)
