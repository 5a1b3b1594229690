"""Track the attempts that this worker holds, from the claim until the answer to their last report.

Main thread only, except `list_held_attempts`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.api.heartbeat_thread import HeldAttempts
from controlplane.agent.api.journal import Journal
from controlplane.agent.api.outbox import Outbox, Report
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.api.reports import FINAL_EVENTS, KILL_PATIENCE, log_refusal, shrink_report, timeout_report
from controlplane.agent.attempt import AttemptStage, HeldAttempt, explain_kill, log_fields, report_for
from controlplane.agent.attempt_start import AttemptStarter
from controlplane.agent.attempt_watch import AttemptWatch
from controlplane.agent.claims_ahead import ClaimsAhead
from controlplane.agent.fence import Fence
from controlplane.agent.fitness.machine_watch import MachineWatch
from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.processes.child_process import ChildExit
from controlplane.agent.processes.folder import Folder
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.runners.policy import ActionPolicy
from controlplane.agent.secrets.lookups import SecretLookups
from controlplane.agent.secrets.sources import SecretSources

log = structlog.get_logger()


class AttemptTracker:
    """Attempts that this worker holds.

    `folder` gets a folder for each attempt. `environment` is the base of the environment of their code. `task_timeout`
    (seconds) is for jobs without a timeout. `memory_limit` (bytes) is for each attempt. `isolation` is the option of
    the agent.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        outbox: Outbox,
        policy: ActionPolicy,
        fence: Fence,
        machine: MachineWatch,
        folder: Folder,
        environment: Mapping[str, str],
        task_timeout: float | None = None,
        memory_limit: int | None = None,
        secrets: SecretSources = SecretSources(),  # noqa: B008 - it is frozen
        isolation: str | None = None,
        slots: int = 1,
        prefetch: int = 0,
    ) -> None:
        self._supervisor, self._outbox, self._policy = supervisor, outbox, policy
        self._machine, self._folder = machine, folder
        self._lookups = SecretLookups(supervisor, secrets)
        self._slots, self._ahead, self._journal = slots, ClaimsAhead(slots, prefetch), Journal()
        self._starter = AttemptStarter(
            supervisor, outbox, fence, machine, environment, self._lookups, self._end_attempt, self._journal, isolation
        )
        self._task_timeout, self._watch = task_timeout, AttemptWatch(supervisor, memory_limit)
        self._attempts: dict[str, HeldAttempt] = {}
        # Those of them that are STARTING, and those that are RUNNING or KILLED. The others have ENDED.
        self._waiting: dict[str, HeldAttempt] = {}
        self._begun: dict[str, HeldAttempt] = {}
        self._lost_ids: frozenset[str] = frozenset()  # the ids under `lost` in the last response
        self._reported_stopped: frozenset[str] = frozenset()

    def begin(self, server: RegisteredServer, state: Path) -> None:
        """Work for this server from now on. `state` is the folder for the journal."""
        self._starter.server_id, self._starter.are_short = server.id, lambda: self._ahead.are_short
        self._journal.open(state, server)

    def close_journal(self, *, is_needed: bool) -> None:
        self._journal.close(is_needed=is_needed)

    @property
    def free_slots(self) -> int:
        """Slots for which a job must be claimed."""
        return max(0, self._slots - self.live_count)

    @property
    def ahead_wanted(self) -> int:
        """Number of jobs that may be claimed beyond the slots. 0: none are needed now."""
        return self._ahead.wanted(self.live_count)

    @property
    def has_work_for_all_slots(self) -> bool:
        return len(self._begun) >= self._slots

    @property
    def live_count(self) -> int:
        return len(self._waiting) + len(self._begun)

    def list_held_attempts(self) -> HeldAttempts:
        """Return the attempts that heartbeats list. Any thread may call this.

        An attempt that has ended stays listed until its report is answered. Until then it must not go stale on the
        control plane.
        """
        attempts = list(self._attempts.values())
        running: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for attempt in attempts:
            if attempt.pid:
                pid = self._supervisor.child_pid(attempt.id) or attempt.pid
                is_silent = attempt.is_silent and attempt.stage is AttemptStage.RUNNING
                running[is_silent].append({"attempt": attempt.id, "pid": pid})
        return HeldAttempts(
            claimed=[attempt.id for attempt in attempts if attempt.stage is AttemptStage.STARTING],
            running=running[False],
            stopped=sorted(self._list_stopped_ids()),
            silent=running[True],
        )

    def accept_claims(self, items: list[dict[str, Any]]) -> None:
        """Prepare claimed attempts. Their code starts once the control plane has accepted their STARTED report."""
        for item in items:
            try:
                attempt = HeldAttempt(item, self._folder, self._task_timeout)
            except Exception as error:  # no content of a job may stop the other jobs
                self._fail_unreadable(item, error)
                continue
            if attempt.id in self._attempts:
                continue  # a repeated claim returns the same attempts
            self._attempts[attempt.id] = self._waiting[attempt.id] = attempt
            try:
                attempt.runner = self._policy.choose_runner(item["job"]["action"])
            except Exception as error:
                log.warning("Job not allowed here", attempt=attempt.id, job=item["job"]["id"], why=str(error))
                self._end_attempt(attempt, {"event": "RELEASED", "reason": "not_allowed"})
            else:
                self._starter.prepare(attempt)

    def _fail_unreadable(self, item: dict[str, Any], error: Exception) -> None:
        """Report an attempt whose item cannot be read. Report STARTED too, because only a started attempt can fail."""
        id, why = str(item["id"]), f"the claimed job cannot be read: {error!r}"[:MESSAGE_LIMIT]
        log.error("Job not started", attempt=id, why=why)
        failed = failure_report("CANNOT_START", why)
        self._outbox.add_reports({"attempt": id, "event": "STARTED"}, {"attempt": id, **failed})

    def record_answer(self, report: Report, result: dict[str, Any]) -> None:
        """Record the control plane's answer to one report."""
        attempt = self._attempts.get(report["attempt"])
        accepted = bool(result.get("accepted"))
        if not accepted and report["event"] not in ("LOG", "PROGRESS"):
            log_refusal(report, result)
        if attempt is None:
            return
        if source := attempt.sources.get(report["event"]):
            source.record_answer()
            return
        if smaller := shrink_report(report, result):
            self._enqueue_reports(attempt, [smaller])
            return
        if report["event"] in FINAL_EVENTS or (not accepted and attempt.stage is AttemptStage.STARTING):
            self._drop(attempt)
        elif attempt.stage is AttemptStage.STARTING:
            attempt.is_accepted = True
        self._begin_next()

    def _begin_next(self) -> None:
        """Start the code of accepted attempts, in their order, as far as slots are free."""
        while len(self._begun) < self._slots:
            attempt = next((one for one in self._waiting.values() if one.is_accepted), None)
            if attempt is None:
                return
            del self._waiting[attempt.id]
            self._starter.start_code(attempt)
            if attempt.is_live:
                self._begun[attempt.id] = attempt

    def _drop(self, attempt: HeldAttempt) -> None:
        """Forget an attempt: its last report was answered, or it is not ours any more."""
        for attempts in (self._attempts, self._waiting, self._begun):
            attempts.pop(attempt.id, None)
        self._journal.forget(attempt.id)

    def give_back_ahead(self, why: str | None = None) -> None:
        """Give back the attempts claimed ahead: all of them because of `why`, or those behind a slow task."""
        if len(self._waiting) <= self._slots - len(self._begun):
            return
        waiting = list(self._waiting.values())[max(0, self._slots - len(self._begun)) :]
        if waiting and (why or self._ahead.is_slow(attempt.begun_at for attempt in self._running())):
            self._ahead.record_slow_task()
            for attempt in waiting:
                self._stop_attempt(attempt, {"event": "RELEASED", "reason": why or "behind a slow task"}, 0.0)

    def next_ahead_look_at(self) -> float | None:
        """Return when `give_back_ahead` is due (monotonic time), or None."""
        waiting = len(self._waiting) > self._slots - len(self._begun)
        return self._ahead.slow_at(attempt.begun_at for attempt in self._running()) if waiting else None

    def record_exit(self, child_exit: ChildExit) -> None:
        """Record the end of a child process: the code of an attempt, or the lookup of a secret."""
        if child_exit.key in self._lookups:
            attempt_id, name, found = self._lookups.record_exit(child_exit)
            waiting = self._attempts.get(attempt_id)
            if waiting and waiting.stage is AttemptStage.STARTING:
                self._starter.record_lookup(waiting, name, found)
            return
        attempt = self._attempts[child_exit.key]
        attempt.pid = child_exit.pid
        if attempt.stage is not AttemptStage.KILLED:
            report = self._report_end(attempt, child_exit)
        elif attempt.final_report is None:
            attempt.close_files()
            self._drop(attempt)
            self._begin_next()
            return
        else:
            report = attempt.final_report
        report = attempt.mask_report(report)
        write = log.debug if self._ahead.are_short and report["event"] == "COMPLETED" else log.info
        write("Job ended", **log_fields(attempt), report=report["event"], code=report.get("error", {}).get("code"))
        self._ahead.record_end(attempt.begun_at)
        self._end_attempt(attempt, report)
        self._begin_next()

    def _report_end(self, attempt: HeldAttempt, child_exit: ChildExit) -> dict[str, Any]:
        """Return the report of an attempt that this worker did not kill."""
        error = attempt.runner.find_machine_error(child_exit)
        if error and (release := self._starter.give_back(attempt, error)):
            return release
        report = explain_kill(report_for(attempt, child_exit), child_exit, self._watch.kernel_kills)
        if report["event"] == "FAILED":
            self._machine.check_soon()
        return report

    def report_output(self) -> None:
        """Add the new output, progress and checkpoints of running code to the outbox."""
        for attempt in self._attempts_with_output():
            news = [report for file in attempt.files for report in file.take_reports()]
            self._enqueue_reports(attempt, [*news, *attempt.log.take_reports()])

    def next_output_at(self) -> float | None:
        """Return when `report_output` may have something to report (monotonic time), or None."""
        due = [
            at
            for attempt in self._attempts_with_output()
            for at in (source.next_report_at() for source in attempt.sources.values())
        ]
        return min((at for at in due if at is not None), default=None)

    def cancel_attempts(self, ids: list[str]) -> None:
        for attempt in self._select_live_attempts(ids):
            log.info("Job cancelled", **log_fields(attempt))
            self._stop_attempt(attempt, {"event": "CANCELLED"}, KILL_PATIENCE)

    def kill_lost_attempts(self, ids: list[str]) -> None:
        """Kill the attempts that a response lists as `lost`.

        Their jobs run elsewhere as soon as a heartbeat lists them as stopped.
        """
        self._lost_ids = frozenset(ids)
        self.abandon_attempts(ids)

    def has_newly_stopped(self) -> bool:
        """Return True if a lost attempt has stopped since the last call. Its job waits for the next heartbeat."""
        stopped = self._list_stopped_ids()
        is_more, self._reported_stopped = bool(stopped - self._reported_stopped), stopped
        return is_more

    def _list_stopped_ids(self) -> frozenset[str]:
        return frozenset(
            id for id in self._lost_ids if (attempt := self._attempts.get(id)) is None or not attempt.is_live
        )

    def abandon_attempts(self, ids: list[str] | None = None) -> None:
        """Kill attempts at once and report nothing, because this worker no longer owns them. None means all."""
        for attempt in self._select_live_attempts(list(self._attempts) if ids is None else ids):
            log.warning("Attempt lost", **log_fields(attempt))
            attempt.spans.end(None)
            if attempt.stage is AttemptStage.STARTING:
                self._lookups.stop(attempt.id)
                self._outbox.withdraw_reports(attempt.id)
                self._drop(attempt)
            elif self._supervisor.kill_child(attempt.id) or attempt.stage is AttemptStage.KILLED:
                attempt.stage, attempt.final_report = AttemptStage.KILLED, None

    def release_attempts(self, reason: str, patience: float = 0.0) -> None:
        """Kill every attempt that has not ended, and report RELEASED with `reason`.

        `patience` is the time in seconds from SIGTERM to SIGKILL.
        """
        for attempt in self._select_live_attempts(list(self._attempts)):
            if attempt.stage is not AttemptStage.KILLED:
                log.warning("Job released", **log_fields(attempt), reason=reason)
            self._stop_attempt(attempt, {"event": "RELEASED", "reason": reason}, patience)

    def block_starts(self, reason: str) -> None:
        """Start no more code. Give back the attempts whose STARTED report has not been sent, with `reason`."""
        self._starter.block_reason = reason
        for attempt in list(self._attempts.values()):
            if attempt.stage is AttemptStage.STARTING and self._outbox.withdraw_reports(attempt.id):
                self._end_attempt(attempt, {"event": "RELEASED", "reason": reason})

    def enforce_timeouts(self) -> None:
        """Kill attempts that have exceeded their timeout."""
        now = time.monotonic()
        self._lookups.enforce_timeout()
        for attempt in self._running():
            if attempt.times_out_at and now >= attempt.times_out_at:
                log.warning("Job exceeded its timeout", **log_fields(attempt), timeout=attempt.timeout)
                attempt.times_out_at = None  # only once: its code may have ended, with only the cleanup left
                self._stop_attempt(attempt, timeout_report(attempt.timeout), KILL_PATIENCE)

    def watch_signs_of_life(self) -> None:
        self._watch.look_for_signs(self._running())

    def enforce_memory_limit(self) -> None:
        """Kill attempts that use more memory than the limit."""
        for attempt, message in self._watch.exceeding_memory(self._running()):
            log.warning("Task killed: out of memory", **log_fields(attempt), why=message)
            self._stop_attempt(attempt, failure_report("OUT_OF_MEMORY", message), 0.0)

    def next_memory_look_at(self) -> float | None:
        """Return when `enforce_memory_limit` is due (monotonic time), or None."""
        return self._watch.memory_look_at if self._watch.memory_limit and self.live_count else None

    def next_timeout_at(self) -> float | None:
        """Return when `enforce_timeouts` is due (monotonic time), or None."""
        due = [*(attempt.times_out_at for attempt in self._running()), self._lookups.next_timeout_at()]
        return min((at for at in due if at), default=None)

    def _stop_attempt(self, attempt: HeldAttempt, final_report: dict[str, Any], patience: float) -> None:
        if attempt.stage is AttemptStage.STARTING:
            # A STARTED that is being sent arrives before this final report, which is the right order.
            self._outbox.withdraw_reports(attempt.id)
            self._end_attempt(attempt, final_report)
        elif attempt.stage is AttemptStage.RUNNING:
            # Code that has already ended keeps its own result. The control plane decides if that comes too late.
            if self._supervisor.kill_child(attempt.id, patience):
                attempt.stage, attempt.final_report = AttemptStage.KILLED, final_report
        elif attempt.stage is AttemptStage.KILLED:
            self._supervisor.kill_child(attempt.id, patience)  # perhaps sooner than before; the first reason stays

    def _end_attempt(self, attempt: HeldAttempt, report: dict[str, Any]) -> None:
        if report["event"] == "RELEASED" and attempt.begun_at is None:
            report = {**report, "begun": False}
        attempt.stage = AttemptStage.ENDED
        self._waiting.pop(attempt.id, None)
        self._begun.pop(attempt.id, None)
        attempt.spans.end(report)
        self._lookups.stop(attempt.id)
        reports = self._address_reports(attempt, [*attempt.close_files(), *attempt.log.close(), report])
        self._journal.note_ended(attempt.id, reports)  # before the next attempt begins
        self._outbox.add_reports(*reports)

    def _enqueue_reports(self, attempt: HeldAttempt, reports: list[dict[str, Any]]) -> None:
        self._outbox.add_reports(*self._address_reports(attempt, reports))

    def _address_reports(self, attempt: HeldAttempt, reports: list[dict[str, Any]]) -> list[Report]:
        return [{"attempt": attempt.id, **attempt.mask_report(report)} for report in reports]

    def _attempts_with_output(self) -> list[HeldAttempt]:
        """Return the attempts whose output may be reported. A lost attempt (KILLED, no report) is not among them."""
        return [
            attempt for attempt in self._begun.values() if attempt.stage is AttemptStage.RUNNING or attempt.final_report
        ]

    def _running(self) -> list[HeldAttempt]:
        return [attempt for attempt in self._begun.values() if attempt.stage is AttemptStage.RUNNING]

    def _select_live_attempts(self, ids: list[str]) -> list[HeldAttempt]:
        attempts = [self._attempts[id] for id in ids if id in self._attempts]
        return [attempt for attempt in attempts if attempt.is_live]
