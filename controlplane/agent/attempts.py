"""Track the attempts that this worker holds, from the claim until the answer to their last report.

Main thread only, except `list_held_attempts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.api.heartbeat_thread import HeldAttempts
from controlplane.agent.api.journal import Journal
from controlplane.agent.api.outbox import Outbox, Report
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.api.reports import FINAL_EVENTS, log_refusal, shrink_report
from controlplane.agent.attempt import AttemptStage, HeldAttempt, explain_kill, log_fields, report_for
from controlplane.agent.attempt_end import AttemptEnder
from controlplane.agent.attempt_start import AttemptStarter
from controlplane.agent.attempt_table import AttemptTable
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
from controlplane.agent.stack_dumps import StackDumps

log = structlog.get_logger()
KILLED_WITH_ANOTHER = "its process was killed because of another task in it"


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
        self._ahead, self._journal = ClaimsAhead(slots, prefetch), Journal()
        self._task_timeout, self._watch = task_timeout, AttemptWatch(supervisor, memory_limit)
        self._table = AttemptTable(slots)
        self.stacks = StackDumps(self._table, supervisor, self._enqueue_reports)
        self.ends = AttemptEnder(self._table, supervisor, outbox, self._journal, self._lookups, self._watch)
        self._starter = AttemptStarter(
            supervisor, outbox, fence, machine, environment, self._lookups, self.ends.end, self._journal, isolation
        )

    def begin(self, server: RegisteredServer, state: Path) -> None:
        """Work for this server from now on. `state` is the folder for the journal."""
        self._starter.server_id, self._starter.are_short = server.id, lambda: self._ahead.are_short
        self._journal.open(state, server)

    def close_journal(self, *, is_needed: bool) -> None:
        self._journal.close(is_needed=is_needed)

    def change_slots(self, slots: int) -> None:
        """Hold at most this many attempts from now on. Running ones continue."""
        self._table.slots = self._ahead.slots = slots

    @property
    def free_slots(self) -> int:
        """Return the number of slots without a job."""
        return max(0, self._table.slots - self._table.live_slots)

    @property
    def ahead_wanted(self) -> int:
        """Number of jobs that may be claimed beyond the slots. 0: none are needed now."""
        return self._ahead.wanted(self._table.live_slots, self._table.list_begins())

    @property
    def has_work_for_all_slots(self) -> bool:
        return self._table.is_full

    @property
    def live_count(self) -> int:
        return self._table.live_count

    def list_held_attempts(self) -> HeldAttempts:
        """Return the attempts that heartbeats list. Any thread may call this.

        An attempt that has ended stays listed until its report is answered. Until then it must not go stale on the
        control plane.
        """
        attempts = self._table.list_all()
        running: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for attempt in attempts:
            if attempt.pid:
                pid = self._supervisor.child_pid(attempt.id) or attempt.pid
                is_silent = attempt.is_silent and attempt.stage is AttemptStage.RUNNING
                running[is_silent].append({"attempt": attempt.id, "pid": pid})
        return HeldAttempts(
            claimed=[attempt.id for attempt in attempts if attempt.stage is AttemptStage.STARTING],
            running=running[False],
            stopped=sorted(self.ends.list_stopped()),
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
            if attempt.id in self._table:
                continue  # a repeated claim returns the same attempts
            self._table.add(attempt)
            try:
                attempt.runner = self._policy.choose_runner(item["job"]["action"])
            except Exception as error:
                log.warning("Job not allowed here", attempt=attempt.id, job=item["job"]["id"], why=str(error))
                self.ends.end(attempt, {"event": "RELEASED", "reason": "not_allowed"})
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
        attempt = self._table.find(report["attempt"])
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
            self.ends.drop(attempt)
        elif attempt.stage is AttemptStage.STARTING:
            attempt.is_accepted = True
        self._begin_next()

    def _begin_next(self) -> None:
        """Start the code of accepted attempts, in their order, as far as slots are free."""
        while attempt := self._table.take_next():
            self._starter.start_code(attempt)
            self._table.record_begin(attempt)

    def give_back_ahead(self, why: str | None = None) -> None:
        """Give back the attempts claimed ahead: all of them because of `why`, or those behind a slow task."""
        ahead = self._table.list_claimed_ahead()
        kept = 0 if why or not ahead else self._ahead.count_kept(self._table.list_begins())
        if len(ahead) > kept:
            if not kept:
                self._ahead.record_slow_task()
            for attempt in ahead[kept:]:
                self.ends.stop(attempt, {"event": "RELEASED", "reason": why or "behind a slow task"}, 0.0)

    def next_ahead_look_at(self) -> float | None:
        """Return when `give_back_ahead` is due (monotonic time), or None."""
        return self._ahead.slow_at(self._table.list_begins()) if self._table.list_claimed_ahead() else None

    def record_exit(self, child_exit: ChildExit) -> None:
        """Record the end of a child process: the code of an attempt, the lookup of a secret, or py-spy."""
        if child_exit.key in self.stacks:
            self.stacks.record_exit(child_exit)
            return
        if child_exit.key in self._lookups:
            attempt_id, name, found = self._lookups.record_exit(child_exit)
            waiting = self._table.find(attempt_id)
            if waiting and waiting.stage is AttemptStage.STARTING:
                self._starter.record_lookup(waiting, name, found)
            return
        attempt = self._table[child_exit.key]
        attempt.pid = child_exit.pid
        if attempt.stage is not AttemptStage.KILLED:
            report = self._report_end(attempt, child_exit)
        elif attempt.final_report is None:
            attempt.close_files()
            self.ends.drop(attempt)
            self._begin_next()
            return
        else:
            report = attempt.final_report
        report = attempt.mask_report(report)
        write = log.debug if self._ahead.are_short and report["event"] == "COMPLETED" else log.info
        write("Job ended", **log_fields(attempt), report=report["event"], code=report.get("error", {}).get("code"))
        self._ahead.record_end(attempt.begun_at)
        self.ends.end(attempt, report)
        self._begin_next()

    def _report_end(self, attempt: HeldAttempt, child_exit: ChildExit) -> dict[str, Any]:
        """Return the report of an attempt that this worker did not kill."""
        if child_exit.is_bystander:
            return {"event": "RELEASED", "reason": KILLED_WITH_ANOTHER}
        error = attempt.runner.find_machine_error(child_exit)
        if error and (release := self._starter.give_back(attempt, error)):
            return release
        report = explain_kill(report_for(attempt, child_exit), child_exit, self._watch.kernel_kills)
        if report["event"] == "FAILED":
            self._machine.check_soon()
        return report

    def report_output(self) -> None:
        """Add the new output, progress and checkpoints of running code to the outbox."""
        for attempt in self._table.list_with_output():
            news = [report for file in attempt.files for report in file.take_reports()]
            self._enqueue_reports(attempt, [*news, *attempt.log.take_reports()])

    def next_output_at(self) -> float | None:
        """Return when `report_output` may have something to report (monotonic time), or None."""
        due = [
            at
            for attempt in self._table.list_with_output()
            for at in (source.next_report_at() for source in attempt.sources.values())
        ]
        return min((at for at in due if at is not None), default=None)

    def block_starts(self, reason: str) -> None:
        """Start no more code. Give back the attempts whose STARTED report has not been sent, with `reason`."""
        self._starter.block_reason = reason
        self.ends.release_unsent(reason)

    def watch_signs_of_life(self) -> None:
        self._watch.look_for_signs(self._table.list_running())

    def _enqueue_reports(self, attempt: HeldAttempt, reports: list[dict[str, Any]]) -> None:
        self._outbox.add_reports(*self.ends.address(attempt, reports))
