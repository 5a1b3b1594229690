"""The attempts this worker holds, from the claim to the answered report.

Main thread only, but for `list_held_attempts`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import structlog

from controlplane.agent.attempt import Attempt, AttemptStage, explain_kill, log_fields, report_for
from controlplane.agent.attempt_watch import AttemptWatch
from controlplane.agent.child_process import ChildExit
from controlplane.agent.fence import Fence
from controlplane.agent.folder import Folder
from controlplane.agent.heart import HeldAttempts
from controlplane.agent.outbox import Outbox, Report
from controlplane.agent.outcomes import failure_report
from controlplane.agent.policy import ActionPolicy
from controlplane.agent.secret_lookups import SecretLookups
from controlplane.agent.secret_sources import SecretSources, SecretUnavailable
from controlplane.agent.secret_values import WrongSecret
from controlplane.agent.supervisor import Supervisor
from controlplane.agent.verdicts import FINAL_EVENTS, KILL_PATIENCE, log_refusal, shrink_report, timeout_report

log = structlog.get_logger()


class AttemptTracker:
    """`folder`: with a folder of each attempt for its files. `environment`: what their code's begins with.
    `task_timeout`: seconds, of those that name none. `memory_limit`: bytes, of each."""

    def __init__(
        self,
        supervisor: Supervisor,
        outbox: Outbox,
        policy: ActionPolicy,
        fence: Fence,
        folder: Folder,
        environment: Mapping[str, str],
        task_timeout: float | None = None,
        memory_limit: int | None = None,
        secrets: SecretSources = SecretSources(),  # noqa: B008 - it is frozen
    ) -> None:
        self._supervisor, self._outbox, self._policy, self._fence = supervisor, outbox, policy, fence
        self._folder, self._environment = folder, environment
        self._lookups = SecretLookups(supervisor, secrets)
        self._task_timeout, self._watch = task_timeout, AttemptWatch(supervisor, memory_limit)
        self._attempts: dict[str, Attempt] = {}
        self._lost_ids: frozenset[str] = frozenset()  # what the last answer named as lost
        self._reported_stopped: frozenset[str] = frozenset()
        self._block_reason: str | None = None  # why nothing may begin any more

    @property
    def live_count(self) -> int:
        return sum(attempt.is_live for attempt in self._attempts.values())

    def list_held_attempts(self) -> HeldAttempts:
        """From any thread: what the claimer's and the runner's heartbeats list.

        An attempt that is over stays listed until its report was answered: it is still ours, and must not go stale.
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
        """The control plane gave us these; their code begins when their STARTED was accepted."""
        for item in items:
            attempt = Attempt(item, self._folder, self._task_timeout)
            if attempt.id in self._attempts:
                continue  # a repeated claim brings the same attempts
            self._attempts[attempt.id] = attempt
            try:
                attempt.runner = self._policy.choose_runner(item["job"]["action"])
            except Exception as error:
                log.warning("Job not allowed here", attempt=attempt.id, job=item["job"]["id"], why=str(error))
                self._end_attempt(attempt, {"event": "RELEASED", "reason": "not_allowed"})
            else:
                if not self._release_if_blocked(attempt):
                    self._look_up_secrets(attempt)

    def record_answer(self, report: Report, result: dict[str, Any]) -> None:
        """The control plane's word on a report of ours."""
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
            self._attempts.pop(attempt.id, None)
        elif attempt.stage is AttemptStage.STARTING:
            self._start_code(attempt)

    def record_exit(self, child_exit: ChildExit) -> None:
        """A child is gone, reaped."""
        if child_exit.key in self._lookups:
            self._record_lookup(child_exit)
            return
        attempt = self._attempts[child_exit.key]
        attempt.pid = child_exit.pid
        if attempt.stage is not AttemptStage.KILLED:
            report = explain_kill(report_for(attempt, child_exit), child_exit, self._watch.kernel_kills)
        elif attempt.verdict is None:
            attempt.close_files()
            del self._attempts[attempt.id]
            return
        else:
            report = attempt.verdict
        report = attempt.mask_report(report)
        log.info("Job ended", **log_fields(attempt), report=report["event"], code=report.get("error", {}).get("code"))
        self._end_attempt(attempt, report)

    def report_output(self) -> None:
        """Report what the code wrote, and how far it has come."""
        for attempt in self._attempts_with_output():
            news = [report for file in attempt.files for report in file.take_reports()]
            self._enqueue_reports(attempt, [*news, *attempt.log.take_reports()])

    def next_output_at(self) -> float | None:
        """Monotonic: when there may be something."""
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
        """An answer names these as lost: they run elsewhere as soon as we say that they do not run here."""
        self._lost_ids = frozenset(ids)
        self.abandon_attempts(ids)

    def has_newly_stopped(self) -> bool:
        """Whether there is more to say of that than when this was asked last: a job waits for it."""
        stopped = self._list_stopped_ids()
        is_more, self._reported_stopped = bool(stopped - self._reported_stopped), stopped
        return is_more

    def _list_stopped_ids(self) -> frozenset[str]:
        return frozenset(
            id for id in self._lost_ids if (attempt := self._attempts.get(id)) is None or not attempt.is_live
        )

    def abandon_attempts(self, ids: list[str] | None = None) -> None:
        """Kill at once and report nothing: they are not ours any more (None: all of them)."""
        for attempt in self._select_live_attempts(list(self._attempts) if ids is None else ids):
            log.warning("Attempt lost", **log_fields(attempt))
            attempt.spans.end(None)
            if attempt.stage is AttemptStage.STARTING:
                self._lookups.stop(attempt.id)
                self._outbox.withdraw_reports(attempt.id)
                del self._attempts[attempt.id]
            elif self._supervisor.kill_child(attempt.id) or attempt.stage is AttemptStage.KILLED:
                attempt.stage, attempt.verdict = AttemptStage.KILLED, None

    def release_attempts(self, reason: str, patience: float = 0.0) -> None:
        """Give back everything that is not over: kill it, then report RELEASED with `reason`."""
        for attempt in self._select_live_attempts(list(self._attempts)):
            if attempt.stage is not AttemptStage.KILLED:
                log.warning("Job released", **log_fields(attempt), reason=reason)
            self._stop_attempt(attempt, {"event": "RELEASED", "reason": reason}, patience)

    def block_starts(self, reason: str) -> None:
        """Begin nothing from now on; what has not begun is given back with `reason`."""
        self._block_reason = reason
        for attempt in list(self._attempts.values()):
            if attempt.stage is AttemptStage.STARTING and self._outbox.withdraw_reports(attempt.id):
                self._end_attempt(attempt, {"event": "RELEASED", "reason": reason})

    def enforce_timeouts(self) -> None:
        """Kill what runs for longer than its job may."""
        now = time.monotonic()
        self._lookups.enforce_timeout()
        for attempt in self._running():
            if attempt.times_out_at and now >= attempt.times_out_at:
                log.warning("Job exceeded its timeout", **log_fields(attempt), timeout=attempt.timeout)
                attempt.times_out_at = None  # once: it may have ended, and have its container removed
                self._stop_attempt(attempt, timeout_report(attempt.timeout), KILL_PATIENCE)

    def watch_signs_of_life(self) -> None:
        self._watch.look_for_signs(self._running())

    def enforce_memory_limit(self) -> None:
        """Kill what has more memory than a task may."""
        for attempt, message in self._watch.exceeding_memory(self._running()):
            log.warning("Task killed: out of memory", **log_fields(attempt), why=message)
            self._stop_attempt(attempt, failure_report("OUT_OF_MEMORY", message), 0.0)

    def next_memory_look_at(self) -> float | None:
        """Monotonic."""
        return self._watch.memory_look_at if self._watch.memory_limit and self.live_count else None

    def next_timeout_at(self) -> float | None:
        """Monotonic."""
        due = [*(attempt.times_out_at for attempt in self._running()), self._lookups.next_timeout_at()]
        return min((at for at in due if at), default=None)

    def _look_up_secrets(self, attempt: Attempt) -> None:
        """Its code begins when all are known, and its STARTED was accepted."""
        try:
            attempt.learn_secrets(self._lookups.start(attempt.id, attempt.secret_names()))
        except (SecretUnavailable, WrongSecret) as error:
            self._end_without_secret(attempt, error)
        else:
            self._report_start(attempt)

    def _record_lookup(self, child_exit: ChildExit) -> None:
        attempt_id, name, found = self._lookups.record_exit(child_exit)
        attempt = self._attempts.get(attempt_id)
        if attempt is None or attempt.stage is not AttemptStage.STARTING or self._release_if_blocked(attempt):
            return  # nobody waits for it any more
        if isinstance(found, SecretUnavailable):
            self._end_without_secret(attempt, found)
        else:
            attempt.learn_secrets({name: found})
            self._report_start(attempt)

    def _report_start(self, attempt: Attempt) -> None:
        if not self._lookups.awaits(attempt.id):
            self._outbox.add_reports({"attempt": attempt.id, "event": "STARTED", **attempt.spans.fields()})

    def _end_without_secret(self, attempt: Attempt, error: Exception) -> None:
        """Its code never begins. Only what was started can fail, so that it was is reported too."""
        log.warning("Job not started", **log_fields(attempt), why=str(error))
        self._outbox.add_reports({"attempt": attempt.id, "event": "STARTED"})
        self._end_attempt(attempt, failure_report("SECRET_UNAVAILABLE", str(error)))

    def _start_code(self, attempt: Attempt) -> None:
        if self._release_if_blocked(attempt):
            return
        try:
            files, item = attempt.open_files(), attempt.revealed_item()
            item["job"]["traceparent"] = attempt.spans.begin_code()
            command = attempt.runner.build_command(item, files, self._environment)
            self._supervisor.start_child(attempt.id, command, attempt.log.write_chunk)
        except Exception as error:  # whatever a job is made of: it costs no other
            why = attempt.mask.mask_text(str(error))
            log.warning("Job could not be started", **log_fields(attempt), why=why)
            self._end_attempt(attempt, failure_report("CANNOT_START", why))
            return
        attempt.pid = self._supervisor.child_pid(attempt.id)
        attempt.stage = AttemptStage.RUNNING
        attempt.times_out_at = None if attempt.timeout is None else time.monotonic() + attempt.timeout
        log.info("Job started", **log_fields(attempt), number=attempt.item["number"], reaper=attempt.pid)

    def _release_if_blocked(self, attempt: Attempt) -> bool:
        """Nothing may begin now, so it is given back."""
        reason = "fenced" if self._fence.has_passed() else self._block_reason
        if reason:
            self._end_attempt(attempt, {"event": "RELEASED", "reason": reason})
        return reason is not None

    def _stop_attempt(self, attempt: Attempt, verdict: dict[str, Any], patience: float) -> None:
        if attempt.stage is AttemptStage.STARTING:
            # One that is in flight arrives before the verdict, which is in order.
            self._outbox.withdraw_reports(attempt.id)
            self._end_attempt(attempt, verdict)
        elif attempt.stage is AttemptStage.RUNNING:
            # What had ended by itself keeps its own result: the control plane decides whether it comes too late.
            if self._supervisor.kill_child(attempt.id, patience):
                attempt.stage, attempt.verdict = AttemptStage.KILLED, verdict
        elif attempt.stage is AttemptStage.KILLED:
            self._supervisor.kill_child(attempt.id, patience)  # perhaps sooner than before; the first verdict stands

    def _end_attempt(self, attempt: Attempt, report: dict[str, Any]) -> None:
        attempt.stage = AttemptStage.ENDED
        attempt.spans.end(report)
        self._lookups.stop(attempt.id)
        self._enqueue_reports(attempt, [*attempt.close_files(), *attempt.log.close(), report])

    def _enqueue_reports(self, attempt: Attempt, reports: list[dict[str, Any]]) -> None:
        self._outbox.add_reports(*({"attempt": attempt.id, **attempt.mask_report(report)} for report in reports))

    def _attempts_with_output(self) -> list[Attempt]:
        """Whose code may have written something that may be handed on."""
        stages = (AttemptStage.RUNNING, AttemptStage.KILLED)
        attempts = [attempt for attempt in self._attempts.values() if attempt.stage in stages]
        return [attempt for attempt in attempts if attempt.stage is AttemptStage.RUNNING or attempt.verdict]

    def _running(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if attempt.stage is AttemptStage.RUNNING]

    def _select_live_attempts(self, ids: list[str]) -> list[Attempt]:
        attempts = [self._attempts[id] for id in ids if id in self._attempts]
        return [attempt for attempt in attempts if attempt.is_live]
