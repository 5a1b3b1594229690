"""The claims that a worker asks for: jobs for its free slots, and short ones ahead. Main thread only."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.transport import TransportThread
from controlplane.agent.attempts import AttemptTracker


@dataclass
class ClaimRequests:
    attempts: AttemptTracker
    outbox: Outbox
    transport: TransportThread
    has_news: bool = True
    """The transport thread has delivered something since it was woken."""
    wanted: object = None

    def renew(self, *, is_open: bool) -> None:
        """Ask the transport thread for as many jobs as may be claimed now. Wake it only if something has changed."""
        free, ahead = (self.attempts.free_slots, self.attempts.ahead_wanted) if is_open else (0, 0)
        is_busy = self.attempts.has_work_for_all_slots
        self.transport.request_slots(free, ahead, may_wait=is_busy)
        wanted = free, ahead, is_busy, self.outbox.company_due_at(0.0)
        if not is_busy or self.has_news or wanted != self.wanted:
            self.transport.act_now()
        self.has_news, self.wanted = False, wanted
