"""Watch the code of attempts from outside: how much memory it uses, and if it hangs."""

from __future__ import annotations

import time
from collections.abc import Iterable

import structlog

from controlplane.agent.attempt import HeldAttempt, log_fields
from controlplane.agent.fitness import memory
from controlplane.agent.from_code.pulse import SILENT_AFTER
from controlplane.agent.processes.supervisor import Supervisor

log = structlog.get_logger()
MEMORY_LOOK_INTERVAL = 0.5  # seconds
SIGN_LOOK_INTERVAL = 1.0  # seconds


class AttemptWatch:
    """Look at the memory and the signs of life of attempts. `memory_limit` is the limit of each attempt in bytes.

    Main thread only: it reads all signs of life before a look, so a pause of the agent itself makes no attempt silent.
    """

    def __init__(self, supervisor: Supervisor, memory_limit: int | None) -> None:
        self.memory_limit, self.kernel_kills = memory_limit, memory.KernelKills()
        self.memory_look_at = 0.0  # monotonic
        self._supervisor, self._sign_look_at = supervisor, 0.0

    def exceeding_memory(self, running: Iterable[HeldAttempt]) -> list[tuple[HeldAttempt, str]]:
        """Return attempts above the memory limit, each with a sentence about it."""
        now = time.monotonic()
        if now < self.memory_look_at:
            return []
        self.memory_look_at = now + MEMORY_LOOK_INTERVAL
        self.kernel_kills.look()
        if (limit := self.memory_limit) is None:
            return []
        exceeding = []
        for attempt in running:
            root, kept = self._supervisor.reaper_pid(attempt.id), self._supervisor.memory_of_earlier(attempt.id)
            if root and (size := memory.size_over_limit(root, limit + kept)):
                had, most = memory.format_size(size - kept), memory.format_size(limit)
                exceeding.append((attempt, f"had {had} of memory; a task of this worker may have {most}"))
        return exceeding

    def look_for_signs(self, running: Iterable[HeldAttempt]) -> None:
        """Mark the attempts whose code hangs or was stopped as silent."""
        now = time.monotonic()
        if now < self._sign_look_at:
            return
        self._sign_look_at = now + SIGN_LOOK_INTERVAL
        for attempt in running:
            last_sign_at = self._supervisor.last_sign_at(attempt.id)
            if last_sign_at is None or attempt.is_silent == (now - last_sign_at > SILENT_AFTER):
                continue
            attempt.is_silent = not attempt.is_silent
            seen = str(self._supervisor.look_at(attempt.id))
            if attempt.is_silent:
                log.warning("No sign of life of a job's code", **log_fields(attempt), processes=seen)
            else:
                log.info("A job's code gives signs of life again", **log_fields(attempt), processes=seen)
