"""The worker: one registration, on the main thread.

Three threads. The main thread owns the attempts and the child processes. It never waits for the network, so it can act
on the fence, a signal or a timeout while a call hangs. One thread sends heartbeats. The transport thread sends reports
and claims. Both put their results into `_inbox` and wake the main thread.
"""

from __future__ import annotations

import queue
import selectors
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from controlplane.agent.api import leftovers
from controlplane.agent.api.client import AgentClient, Refused
from controlplane.agent.api.heartbeat_thread import HeartbeatThread
from controlplane.agent.api.instructions import Instructions
from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.registration import RegisteredServer, register_server
from controlplane.agent.api.reports import KILL_PATIENCE
from controlplane.agent.api.transport import ClaimResult, ReportResult, start_transport
from controlplane.agent.attempts import AttemptTracker
from controlplane.agent.fence import Fence
from controlplane.agent.fitness import status_file
from controlplane.agent.fitness.checks import FitnessChecks
from controlplane.agent.options import Options
from controlplane.agent.processes.folder import Folder
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.processes.wakeup import InterruptedBySignal, Wakeup
from controlplane.agent.processes.worker_metrics import WorkerMetrics
from controlplane.agent.proofs.fast_recovery import FastRecovery
from controlplane.agent.runners.containers import clear_containers
from controlplane.agent.shutdown import LAST_ANSWERS_TIMEOUT, Shutdown

log = structlog.get_logger()
LEFTOVERS_TIMEOUT = 5.0  # seconds to send the reports of an earlier agent before this one registers
LOOK_INTERVAL = 1.0  # seconds, at most, between two looks at the clocks: select() does not count suspended time


class ServerPurged(Exception):
    """The control plane has deleted this server. All its code was killed."""


class AgentWorker:
    def __init__(self, options: Options, wakeup: Wakeup, *, was_known: bool = False) -> None:
        """`was_known` is True if the control plane has registered this process before."""
        self._was_known = was_known
        self._options, self._wakeup = options, wakeup
        self._client = AgentClient(options.url)
        self._selector = selectors.DefaultSelector()
        self._selector.register(wakeup, selectors.EVENT_READ)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._supervisor = Supervisor(
            self._selector, options.max_tasks_per_child, options.concurrency, options.max_memory_per_child
        )
        self._outbox = Outbox()
        self._fence = Fence()
        self._folder = Folder()
        self._checks = FitnessChecks(
            self._supervisor, self._folder, options.environment, options.runtimes, options.probe,
            options.probe_interval, options.probe_timeout, lambda: self._heart.act_now(),
        )  # fmt: skip
        self._attempts = AttemptTracker(
            self._supervisor, self._outbox, options.policy, self._fence, self._checks.machine, self._folder,
            options.environment, options.task_timeout, options.memory_limit, options.secrets,
            options.isolation, options.concurrency, options.prefetch,
        )  # fmt: skip
        self._fenced = threading.Event()  # set by the heartbeat thread when it killed all code for the fence
        self._instructions: Instructions | None = None  # None until a heartbeat was answered
        self._signals = 0
        self._has_news = True  # the transport thread has delivered something since it was woken
        self._wanted: object = None
        register = leftovers.Register(self._client, options.read_token, options.description)
        self._leftovers = leftovers.load_leftovers(options.state, self._client, register=register)
        self._is_dead = False  # the control plane has declared this server dead: it refuses all reports
        self._is_purged = False
        self._fast_recovery = FastRecovery(options, self._client)
        self.exit_status: int | None = None

    def run(self) -> int:
        """Run until the worker has ended, and return its exit status.

        Raise Refused if the registration is refused, InterruptedBySignal if a signal arrives before it, and
        ServerPurged if the control plane has deleted this server.
        """
        self._wakeup.is_interrupting = True
        if self._wakeup.signals:  # the signal arrived while an earlier registration ended
            raise InterruptedBySignal(signal.Signals(self._wakeup.signals[-1]).name)
        try:
            self._clear_containers()
            for leftover in self._leftovers:
                leftover.send_reports(LEFTOVERS_TIMEOUT)
            self._fast_recovery.report_dead_servers(LEFTOVERS_TIMEOUT)
            self._server = register_server(
                self._client,
                self._options.read_token,
                self._options.description(),
                time.sleep,
                was_known=self._was_known,
            )
            self._wakeup.is_interrupting = False
            log.info(f"Worker registered with ID: {self._server.id}", name=self._options.name, tags=self._options.tags)
            self._fast_recovery.begin(self._server, self._supervisor)
            self._start_threads(self._server)
            while self.exit_status is None:
                self.run_once()
            if self._is_purged:
                raise ServerPurged(self._server.id)
            return self.exit_status
        finally:
            self._close_resources()

    def _clear_containers(self) -> None:
        """Remove containers of a previous agent with this name, unless that agent still runs."""
        if status_file.is_running(self._options.name):
            log.warning("Another agent with this name runs here: its containers stay", name=self._options.name)
        else:
            clear_containers(list(self._options.policy.runners.values()), self._options.environment)

    def _start_threads(self, server: RegisteredServer) -> None:
        # Several tries must fit into the timeout, even if a call hangs.
        self._client.timeout = max(0.5, min(10.0, server.config.timeout / 4))
        self._fence.renew_deadline(server.registered_at, server.fence_after)
        self._supervisor.adopt()
        self._attempts.begin(server, self._options.state)
        self._supervisor.set_fence_deadline(self._reaper_deadline())
        self._metrics = WorkerMetrics(self._supervisor)
        self._heart = HeartbeatThread(
            server,
            self._fence,
            list_held_attempts=self._attempts.list_held_attempts,
            metrics=self._read_metrics,
            on_answer=self._put_in_inbox,
            on_fenced=self._kill_for_fence,
            cordon=self._checks.cordon,
        )
        self._heart.start()
        self._transport = start_transport(
            server, self._outbox, self._options.poll, self._put_in_inbox, self._heart.act_now
        )
        self._shutdown = Shutdown(
            server, self._heart, self._transport, self._attempts, self._outbox, self._save_unanswered
        )

    # These methods run in other threads.

    def _put_in_inbox(self, message: Any) -> None:
        self._inbox.put(message)
        self._wakeup.wake_up()

    def _kill_for_fence(self) -> None:
        # Set the event first: the main thread must see it when it finds a child that was killed here.
        self._fenced.set()
        self._supervisor.kill_all_children()
        self._wakeup.wake_up()

    def _read_metrics(self) -> dict[str, Any]:
        held = self._attempts.list_held_attempts()
        load = self._metrics.read([running["attempt"] for running in held.running], len(held.claimed))
        return load | self._fast_recovery.metrics()

    # All other methods run on the main thread.

    def run_once(self) -> None:
        """Wait for an event, then do everything that is due."""
        ready = self._selector.select(self._seconds_to_wait())
        self._enforce_fence()
        self._wakeup.clear_wakeups()
        while self._wakeup.signals:
            self._handle_signal(self._wakeup.signals.popleft())
        self._supervisor.transfer_ready(ready)
        for child_exit in self._supervisor.reap_children():
            self._enforce_fence()  # the fence may have killed it since the last check
            owner = self._checks.owner_of(child_exit.key) or self._attempts
            self._guard(owner.record_exit, child_exit)
        self._read_inbox()
        if self._attempts.has_newly_stopped():
            self._heart.act_now()
        if self.exit_status is not None:
            return
        self._guard(self._attempts.enforce_timeouts)
        self._guard(self._attempts.enforce_memory_limit)
        self._guard(self._attempts.watch_signs_of_life)
        self._guard(self._attempts.report_output)
        self._enforce_drain()
        if self._shutdown.reason:
            self.exit_status = self._shutdown.advance()
        else:
            for step in self._checks.steps:
                self._guard(step)
        self._request_work()
        self._fast_recovery.watch()

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        due = [self._supervisor.next_kill_at(), self._attempts.next_timeout_at(), self._attempts.next_output_at()]
        due += [self._attempts.next_ahead_look_at(), self._shutdown.next_step_at, self._attempts.next_memory_look_at()]
        due += [] if self._shutdown.reason else self._checks.next_steps_at()
        waits = [LOOK_INTERVAL, *(at - now for at in due if at is not None)]
        if self._attempts.live_count and (remaining := self._fence.remaining_seconds()):
            waits.append(remaining)
        return max(0.0, min(waits))

    def _enforce_fence(self) -> None:
        if not (self._fenced.is_set() or self._fence.has_passed()):
            return
        self._fenced.clear()
        self._attempts.release_attempts("fenced")

    def _handle_signal(self, number: int) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):
            return
        name = signal.Signals(number).name
        log.info(f"Received {name} signal")
        self._signals += 1
        if self._signals > 1:
            self._shutdown.force("forced")
        elif not self._shutdown.reason:
            self._start_shutdown(name)

    def _read_inbox(self) -> None:
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._has_news = True
            self._guard(self._handle_message, message)

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception:  # one unexpected response or job must not stop the other jobs
            log.exception("Unexpected error", step=step.__name__)

    def _handle_message(self, message: Any) -> None:
        if isinstance(message, ClaimResult):
            self._transport.acknowledge_claim()
            self._attempts.accept_claims(message.items)
        elif isinstance(message, ReportResult):
            self._attempts.record_answer(message.report, message.result)
        elif isinstance(message, Refused):
            self._handle_refusal(message)
        else:
            self._handle_answer(message)

    def _handle_answer(self, answer: dict[str, Any]) -> None:
        self._instructions = instructions = Instructions.parse(answer)
        self._transport.retry_now()
        self._supervisor.set_fence_deadline(self._reaper_deadline())
        self._attempts.cancel_attempts(instructions.cancel)
        self._attempts.kill_lost_attempts(instructions.lost)
        if not self._shutdown.reason:
            self._heart.report_state("MAINTENANCE" if instructions.is_in_maintenance else "RUNNING")
        config = self._server.config
        try:
            status_file.write_status(
                self._options.name, self._server.id, instructions.state, config.timeout, self._fence.clock()
            )
        except OSError as error:
            log.warning("Status file not written: --check will fail", why=str(error))

    def _handle_refusal(self, refused: Refused) -> None:
        if refused.code == "server_unknown":
            log.warning("This server was purged: registering again", server=self._server.id)
            self._kill_everything()
            self._is_purged, self.exit_status = True, 1
        elif refused.code == "server_not_running":
            log.error("Declared dead, its jobs are elsewhere: killing all", server=self._server.id)
            self._kill_everything()
            self.exit_status = 1
        elif refused.code in ("server_disconnected", "token_revoked") and not self._shutdown.reason:
            log.error("Disconnected: finishing the jobs that run here", code=refused.code, detail=refused.detail)
            self._start_shutdown(refused.code)

    def _enforce_drain(self) -> None:
        # The control plane set the deadline by its clock, so compare with that clock.
        drain_at = self._instructions.drain_at if self._instructions else None
        if drain_at is not None and time.time() + self._client.clock_offset >= drain_at:
            self._attempts.release_attempts("drain_deadline", KILL_PATIENCE)

    def _request_work(self) -> None:
        blocked = self._instructions is None or self._instructions.blocks_claims or self._shutdown.reason
        open_ = not blocked and not self._fence.has_passed() and self._checks.are_passing
        if not open_:
            self._attempts.give_back_ahead("the worker takes no more work")
        self._guard(self._attempts.give_back_ahead)
        free, ahead = (self._attempts.free_slots, self._attempts.ahead_wanted) if open_ else (0, 0)
        is_busy = self._attempts.has_work_for_all_slots
        self._transport.request_slots(free, ahead, may_wait=is_busy)
        wanted = free, ahead, is_busy, self._outbox.company_due_at(0.0)
        if not is_busy or self._has_news or wanted != self._wanted:
            self._transport.act_now()
        self._has_news, self._wanted = False, wanted

    def _start_shutdown(self, why: str) -> None:
        if (fence := self._server.config.last_fence_seconds) is not None:
            self._fence.shorten_deadline(fence)
            self._supervisor.set_fence_deadline(self._reaper_deadline())
        self._shutdown.start(why)

    def _save_unanswered(self) -> bool:
        """Save unanswered reports on disk for the next start. Return False if that failed."""
        reports = [] if self._is_dead else self._outbox.unanswered_reports()
        try:
            leftovers.save_reports(self._options.state, self._server, reports)
        except OSError as error:
            log.error("Reports not kept: their jobs run again", reports=len(reports), why=str(error))
            return False
        if reports and self.exit_status is not None:
            log.warning("Reports kept for the next start", reports=len(reports), folder=str(self._options.state))
        return True

    def _is_end_known(self) -> bool:
        """Return True if the control plane knows that this server ended, or has deleted it."""
        return self._is_dead or (hasattr(self, "_shutdown") and self._shutdown.is_answered)

    def _kill_everything(self) -> None:
        self._is_dead = True
        self._supervisor.kill_all_children()
        until = time.monotonic() + LAST_ANSWERS_TIMEOUT
        while len(self._supervisor) and time.monotonic() < until:
            self._selector.select(0.2)
            self._wakeup.clear_wakeups()
            self._supervisor.reap_children()

    def _reaper_deadline(self) -> float | None:
        # A little after the agent's own deadline, so that the agent can kill and report first. The control plane gives
        # no job away for another 20 % of the timeout.
        deadline = self._fence.deadline
        return None if deadline is None else deadline + self._server.config.timeout * 0.05

    def _close_resources(self) -> None:
        for thread in (getattr(self, "_heart", None), getattr(self, "_transport", None)):
            if isinstance(thread, HeartbeatThread):
                thread.stop()
            elif thread:
                thread.close()
        for leftover in self._leftovers:
            leftover.close()
        if hasattr(self, "_server"):
            self._attempts.close_journal(is_needed=not self._save_unanswered())
        self._supervisor.close()
        self._fast_recovery.close(is_end_known=self._is_end_known())
        self._folder.remove()
        status_file.remove_status(self._options.name)
        self._selector.close()
        self._client.close()
