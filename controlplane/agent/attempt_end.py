"""The end of attempts: kill their code if it runs, and report their end. Main thread only."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import structlog

from controlplane.agent.api.journal import Journal
from controlplane.agent.api.outbox import Outbox, Report
from controlplane.agent.api.reports import KILL_PATIENCE, timeout_report
from controlplane.agent.attempt import AttemptStage, HeldAttempt, log_fields
from controlplane.agent.attempt_table import AttemptTable
from controlplane.agent.attempt_watch import AttemptWatch
from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.secrets.lookups import SecretLookups

log = structlog.get_logger()


class AttemptEnder:
    """End attempts by themselves, by a limit, or because the control plane or the agent demands it."""

    def __init__(
        self,
        table: AttemptTable,
        supervisor: Supervisor,
        outbox: Outbox,
        journal: Journal,
        lookups: SecretLookups,
        watch: AttemptWatch,
    ) -> None:
        self._table, self._supervisor, self._outbox = table, supervisor, outbox
        self._journal, self._lookups, self._watch = journal, lookups, watch
        self._lost_ids: frozenset[str] = frozenset()  # the ids under `lost` in the last response
        self._reported_stopped: frozenset[str] = frozenset()

    def end(self, attempt: HeldAttempt, report: dict[str, Any]) -> None:
        """Report the end of an attempt whose code does not run."""
        if report["event"] == "RELEASED" and attempt.begun_at is None:
            report = {**report, "begun": False}
        self._table.record_end(attempt)
        attempt.spans.end(report)
        self._lookups.stop(attempt.id)
        reports = self.address(attempt, [*attempt.close_files(), *attempt.log.close(), report])
        self._journal.note_ended(attempt.id, reports)  # before the next attempt begins
        self._outbox.add_reports(*reports)

    def drop(self, attempt: HeldAttempt) -> None:
        """Forget an attempt: its last report was answered, or it is not ours any more."""
        self._table.remove(attempt)
        self._journal.forget(attempt.id)

    def address(self, attempt: HeldAttempt, reports: Iterable[dict[str, Any]]) -> list[Report]:
        """Return reports of an attempt as they are sent."""
        return [{"attempt": attempt.id, **attempt.mask_report(report)} for report in reports]

    def stop(self, attempt: HeldAttempt, final_report: dict[str, Any], patience: float) -> None:
        """Kill the code of an attempt and report its end. `patience`: seconds from SIGTERM to SIGKILL."""
        if attempt.stage is AttemptStage.STARTING:
            # A STARTED that is being sent arrives before this final report, which is the right order.
            self._outbox.withdraw_reports(attempt.id)
            self.end(attempt, final_report)
        elif attempt.stage is AttemptStage.RUNNING:
            # Code that has already ended keeps its own result. The control plane decides if that comes too late.
            if self._supervisor.kill_child(attempt.id, patience):
                attempt.stage, attempt.final_report = AttemptStage.KILLED, final_report
        elif attempt.stage is AttemptStage.KILLED:
            self._supervisor.kill_child(attempt.id, patience)  # perhaps sooner than before; the first reason stays

    def cancel(self, ids: list[str]) -> None:
        for attempt in self._table.select_live(ids):
            log.info("Job cancelled", **log_fields(attempt))
            self.stop(attempt, {"event": "CANCELLED"}, KILL_PATIENCE)

    def kill_lost(self, ids: list[str]) -> None:
        """Kill the attempts that a response lists as `lost`, and report nothing. This worker no longer owns them.

        Their jobs run elsewhere as soon as a heartbeat lists them as stopped.
        """
        self._lost_ids = frozenset(ids)
        for attempt in self._table.select_live(ids):
            log.warning("Attempt lost", **log_fields(attempt))
            attempt.spans.end(None)
            if attempt.stage is AttemptStage.STARTING:
                self._lookups.stop(attempt.id)
                self._outbox.withdraw_reports(attempt.id)
                self.drop(attempt)
            elif self._supervisor.kill_child(attempt.id) or attempt.stage is AttemptStage.KILLED:
                attempt.stage, attempt.final_report = AttemptStage.KILLED, None

    def has_newly_stopped(self) -> bool:
        """Return True if a lost attempt has stopped since the last call. Its job waits for the next heartbeat."""
        stopped = self.list_stopped()
        is_more, self._reported_stopped = bool(stopped - self._reported_stopped), stopped
        return is_more

    def list_stopped(self) -> frozenset[str]:
        """Return the ids of lost attempts whose code does not run. Any thread may call this."""
        return frozenset(id for id in self._lost_ids if (one := self._table.find(id)) is None or not one.is_live)

    def release_all(self, reason: str, patience: float = 0.0) -> None:
        """Kill every attempt that has not ended, and report RELEASED with `reason`.

        `patience` is the time in seconds from SIGTERM to SIGKILL.
        """
        for attempt in self._table.select_live():
            if attempt.stage is not AttemptStage.KILLED:
                log.warning("Job released", **log_fields(attempt), reason=reason)
            self.stop(attempt, {"event": "RELEASED", "reason": reason}, patience)

    def release_unsent(self, reason: str) -> None:
        """Give back the attempts whose STARTED report has not been sent."""
        for attempt in self._table.select_live():
            if attempt.stage is AttemptStage.STARTING and self._outbox.withdraw_reports(attempt.id):
                self.end(attempt, {"event": "RELEASED", "reason": reason})

    def enforce_timeouts(self) -> None:
        """Kill attempts that have exceeded their timeout."""
        now = time.monotonic()
        self._lookups.enforce_timeout()
        for attempt in self._table.list_running():
            if attempt.times_out_at and now >= attempt.times_out_at:
                log.warning("Job exceeded its timeout", **log_fields(attempt), timeout=attempt.timeout)
                attempt.times_out_at = None  # only once: its code may have ended, with only the cleanup left
                self.stop(attempt, timeout_report(attempt.timeout), KILL_PATIENCE)

    def next_timeout_at(self) -> float | None:
        """Return when `enforce_timeouts` is due (monotonic time), or None."""
        due = [*(attempt.times_out_at for attempt in self._table.list_running()), self._lookups.next_timeout_at()]
        return min((at for at in due if at), default=None)

    def enforce_memory_limit(self) -> None:
        """Kill attempts that use more memory than the limit."""
        for attempt, message in self._watch.exceeding_memory(self._table.list_running()):
            log.warning("Task killed: out of memory", **log_fields(attempt), why=message)
            self.stop(attempt, failure_report("OUT_OF_MEMORY", message), 0.0)

    def next_memory_look_at(self) -> float | None:
        """Return when `enforce_memory_limit` is due (monotonic time), or None."""
        return self._watch.memory_look_at if self._watch.memory_limit and self._table.live_count else None
