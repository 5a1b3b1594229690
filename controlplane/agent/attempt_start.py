"""The start of attempts: find the secrets, report STARTED, and start the code once STARTED was accepted.

Main thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from controlplane.agent.api.journal import Journal
from controlplane.agent.api.outbox import Outbox
from controlplane.agent.attempt import AttemptStage, HeldAttempt, log_fields
from controlplane.agent.fence import Fence
from controlplane.agent.fitness.machine_watch import MachineWatch, describe
from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.processes.machine_errors import MachineError, is_of_machine
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.secrets.lookups import SecretLookups
from controlplane.agent.secrets.sources import SecretUnavailable
from controlplane.agent.secrets.values import WrongSecret

log = structlog.get_logger()
NOT_NOTED = "machine: the state folder accepts no writes, and the journal shows this attempt as not begun"


class AttemptStarter:
    """Start the code of attempts, or end the attempts that cannot start.

    `environment` is the base of the environment of their code. `end_attempt` is called with an attempt and its last
    report. `isolation` is that of the agent's option; None means the default of each runner.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        outbox: Outbox,
        fence: Fence,
        machine: MachineWatch,
        environment: Mapping[str, str],
        lookups: SecretLookups,
        end_attempt: Callable[[HeldAttempt, dict[str, Any]], None],
        journal: Journal,
        isolation: str | None = None,
    ) -> None:
        self._supervisor, self._outbox, self._fence = supervisor, outbox, fence
        self._machine, self._environment, self._lookups = machine, environment, lookups
        self._end_attempt, self._journal, self._isolation = end_attempt, journal, isolation
        self.server_id: str | None = None
        self.are_short: Callable[[], bool] = lambda: False  # True: do not log each attempt
        self.block_reason: str | None = None  # why no code may start any more

    def prepare(self, attempt: HeldAttempt) -> None:
        """Start to look up the secrets of an attempt. Report STARTED when all are known."""
        if self._release_if_blocked(attempt):
            return
        try:
            attempt.add_secrets(self._lookups.start(attempt.id, attempt.secret_names()))
        except (SecretUnavailable, WrongSecret, MachineError) as error:
            self._end_without_secret(attempt, error)
        else:
            self._report_start(attempt)

    def record_lookup(self, attempt: HeldAttempt, name: str, found: str | Exception) -> None:
        """Record the value of a secret, or the error of its lookup."""
        if self._release_if_blocked(attempt):
            return
        if isinstance(found, Exception):
            self._end_without_secret(attempt, found)
        else:
            attempt.add_secrets({name: found})
            self._report_start(attempt)

    def start_code(self, attempt: HeldAttempt) -> None:
        """Start the code of an attempt whose STARTED was accepted."""
        if self._release_if_blocked(attempt):
            return
        try:
            runs_in_pool = self._runs_in_pool(attempt)
            files, item = attempt.open_files(has_folder=not runs_in_pool), attempt.revealed_item()
            item["server"] = self.server_id
            item["job"]["traceparent"] = attempt.spans.begin_code()
            command = attempt.runner.build_command(item, files, self._environment)
            command = replace(command, in_pool=runs_in_pool)
            if not self._journal.note_begun(attempt.id):
                self._end_attempt(attempt, {"event": "RELEASED", "reason": NOT_NOTED})
                return
            attempt.begun_at = time.monotonic()
            self._supervisor.start_child(attempt.id, command, attempt.log.write_chunk, is_attempt=True)
        except Exception as error:  # no content of a job may stop the other jobs
            why = attempt.mask.mask_text(str(error))
            if isinstance(error, OSError) or is_of_machine(error):  # an error of this process: no job can cause it
                certain = MachineError(describe(error), is_certain=True)
                if release := self.give_back(attempt, certain):
                    self._end_attempt(attempt, release)
                    return
            log.warning("Job could not be started", **log_fields(attempt), why=why)
            self._end_attempt(attempt, failure_report("CANNOT_START", why))
            return
        attempt.pid = self._supervisor.child_pid(attempt.id)
        attempt.stage = AttemptStage.RUNNING
        attempt.times_out_at = None if attempt.timeout is None else time.monotonic() + attempt.timeout
        write = log.debug if self.are_short() else log.info
        write("Job started", **log_fields(attempt), number=attempt.item["number"], reaper=attempt.pid)

    def _runs_in_pool(self, attempt: HeldAttempt) -> bool:
        """Return True for a function that may run in a pool process.

        Its code could read what the attempts before it were given, so a job with secrets gets a process of its own.
        """
        if not attempt.runner.with_result or attempt.item["job"].get("isolation") or attempt.has_secrets:
            return False
        return attempt.runner.is_pooled if self._isolation is None else self._isolation == "pool"

    def give_back(self, attempt: HeldAttempt, error: MachineError) -> dict[str, Any] | None:
        """Return the report that gives an attempt back because of this machine. Return None if the job is at fault."""
        why = attempt.mask.mask_text(str(error))
        if not self._machine.record_error(attempt.item["job"]["id"], error):
            return None
        log.warning("Job given back: this machine cannot start it", **log_fields(attempt), why=why)
        return {"event": "RELEASED", "reason": f"machine: {why}"[:MESSAGE_LIMIT]}

    def _release_if_blocked(self, attempt: HeldAttempt) -> bool:
        """Give an attempt back if no code may start now. Return True if it was given back."""
        reason = "fenced" if self._fence.has_passed() else self.block_reason
        if not reason and self._machine.reason:
            reason = f"machine: {self._machine.reason}"[:MESSAGE_LIMIT]
        if reason:
            self._end_attempt(attempt, {"event": "RELEASED", "reason": reason})
        return reason is not None

    def _report_start(self, attempt: HeldAttempt) -> None:
        if not self._lookups.awaits(attempt.id):
            self._journal.note_waiting(attempt.id)
            self._outbox.add_reports({"attempt": attempt.id, "event": "STARTED", **attempt.spans.fields()})

    def _end_without_secret(self, attempt: HeldAttempt, error: Exception) -> None:
        """End an attempt whose code never starts. Report STARTED too, because only a started attempt can fail."""
        if isinstance(error, MachineError) and (release := self.give_back(attempt, error)):
            self._end_attempt(attempt, release)
            return
        log.warning("Job not started", **log_fields(attempt), why=str(error))
        self._outbox.add_reports({"attempt": attempt.id, "event": "STARTED"})
        self._end_attempt(attempt, failure_report("SECRET_UNAVAILABLE", str(error)))
