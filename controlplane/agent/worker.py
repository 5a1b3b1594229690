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

from controlplane.agent.answers import AnswerHandler
from controlplane.agent.api.client import AgentClient
from controlplane.agent.api.heartbeat_thread import HeartbeatThread
from controlplane.agent.api.leftovers import KeptReports, Register
from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.registration import RegisteredServer, register_server
from controlplane.agent.api.transport import start_transport
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
from controlplane.agent.runners.pooled_modules import list_pooled_modules
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
            self._selector, options.max_tasks_per_child, options.concurrency, options.max_memory_per_child,
            options.at_once,
        )  # fmt: skip
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
            options.isolation, options.slots, options.prefetch,
        )  # fmt: skip
        self._fenced = threading.Event()  # set by the heartbeat thread when it killed all code for the fence
        register = Register(self._client, options.read_token, options.description)
        self._kept = KeptReports(options.state, self._client, register)
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
            options, runners = self._options, self._options.policy.runners.values()
            self._supervisor.prepare(list_pooled_modules(runners, options.isolation, options.environment))
            self._clear_containers()
            self._kept.send(LEFTOVERS_TIMEOUT)
            self._fast_recovery.report_dead_servers(LEFTOVERS_TIMEOUT)
            description = self._options.description()
            self._server = register_server(
                self._client, self._options.read_token, description, time.sleep, was_known=self._was_known
            )
            self._wakeup.is_interrupting = False
            log.info(f"Worker registered with ID: {self._server.id}", name=self._options.name, tags=self._options.tags)
            self._fast_recovery.begin(self._server, self._supervisor)
            self._start_threads(self._server)
            while self.exit_status is None:
                self.run_once()
            if self._answers.is_purged:
                raise ServerPurged(self._server.id)
            return self.exit_status
        finally:
            self._close_resources()

    @property
    def options(self) -> Options:
        """Return the options of this worker, with the slots and tags that an operator has chosen."""
        return self._options

    def _adapt(self, slots: int, tags: list[str]) -> None:
        """Take over the slots and tags that the control plane has for this worker. Running code continues."""
        if (slots, tags) == (self._options.slots, self._options.tags):
            return
        self._options = self._options.with_config(slots, tags)
        self._attempts.change_slots(slots)
        self._supervisor.resize(self._options.concurrency)
        log.info("Slots and tags were changed by an operator", slots=slots, tags=tags)

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
        self._attempts.stacks.put = self._put_in_inbox
        self._renew_reapers()
        self._metrics = WorkerMetrics(self._supervisor)
        self._heart = HeartbeatThread(
            server, self._fence, list_held_attempts=self._attempts.list_held_attempts, metrics=self._read_metrics,
            on_answer=self._put_in_inbox, on_fenced=self._kill_for_fence, cordon=self._checks.cordon,
        )  # fmt: skip
        self._heart.start()
        self._transport = start_transport(
            server, self._outbox, self._options.poll, self._put_in_inbox, self._heart.act_now
        )
        self._shutdown = Shutdown(
            server, self._heart, self._transport, self._attempts, self._outbox, self._fence, self._renew_reapers,
            self._save_unanswered,
        )  # fmt: skip
        self._answers = AnswerHandler(
            self._options.name, server, self._attempts, self._fence, self._heart, self._transport, self._shutdown,
            self._kill_everything, self._adapt,
        )  # fmt: skip

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
            self._shutdown.record_signal(self._wakeup.signals.popleft())
        self._supervisor.transfer_ready(ready)
        for child_exit in self._supervisor.reap_children():
            self._enforce_fence()  # the fence may have killed it since the last check
            owner = self._checks.owner_of(child_exit.key) or self._attempts
            self._guard(owner.record_exit, child_exit)
        self._read_inbox()
        if self._answers.is_dead:
            self.exit_status = 1
        if self._attempts.ends.has_newly_stopped():
            self._heart.act_now()
        if self.exit_status is not None:
            return
        self._guard(self._attempts.ends.enforce_timeouts)
        self._guard(self._attempts.ends.enforce_memory_limit)
        self._guard(self._attempts.watch_signs_of_life)
        self._guard(self._attempts.report_output)
        self._answers.enforce_drain()
        if self._shutdown.reason:
            self.exit_status = self._shutdown.advance()
        else:
            for step in self._checks.steps:
                self._guard(step)
        self._request_work()
        self._fast_recovery.watch()

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        attempts, ends = self._attempts, self._attempts.ends
        due = [self._supervisor.next_kill_at(), ends.next_timeout_at(), attempts.next_output_at()]
        due += [attempts.next_ahead_look_at(), self._shutdown.next_step_at, ends.next_memory_look_at()]
        due += [] if self._shutdown.reason else self._checks.next_steps_at()
        waits = [LOOK_INTERVAL, *(at - now for at in due if at is not None)]
        if self._attempts.live_count and (remaining := self._fence.remaining_seconds()):
            waits.append(remaining)
        return max(0.0, min(waits))

    def _enforce_fence(self) -> None:
        if not (self._fenced.is_set() or self._fence.has_passed()):
            return
        self._fenced.clear()
        self._attempts.ends.release_all("fenced")

    def _read_inbox(self) -> None:
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                break
            self._guard(self._answers.handle, message)
        if self._answers.has_new_claims:
            self._answers.has_new_claims = False
            self._request_work()
            self._transport.acknowledge_claim()

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception:  # one unexpected response or job must not stop the other jobs
            log.exception("Unexpected error", step=step.__name__)

    def _request_work(self) -> None:
        is_preparing = self._supervisor.is_preparing  # always read, because this looks whether the imports have ended
        is_blocked = self._answers.blocks_claims or self._shutdown.reason or self._fence.has_passed()
        attempts, is_open = self._attempts, not (is_preparing or is_blocked) and self._checks.are_passing
        if not is_open:
            attempts.give_back_ahead("the worker takes no more work")
        self._guard(attempts.give_back_ahead)
        free, ahead = (attempts.free_slots, attempts.ahead_wanted) if is_open else (0, 0)
        self._transport.request_slots(free, ahead, may_wait=attempts.has_work_for_all_slots)

    def _renew_reapers(self) -> None:
        self._supervisor.set_fence_deadline(self._fence.reaper_deadline(self._server.config.timeout))

    def _save_unanswered(self) -> bool:
        """Save unanswered reports on disk for the next start. Return False if that failed."""
        reports = [] if self._answers.is_dead else self._outbox.unanswered_reports()
        return self._kept.save(self._server, reports, is_last=self.exit_status is not None)

    def _kill_everything(self) -> None:
        self._supervisor.kill_all_children()
        until = time.monotonic() + LAST_ANSWERS_TIMEOUT
        while len(self._supervisor) and time.monotonic() < until:
            self._selector.select(0.2)
            self._wakeup.clear_wakeups()
            self._supervisor.reap_children()

    def _close_resources(self) -> None:
        for thread in (getattr(self, "_heart", None), getattr(self, "_transport", None)):
            if isinstance(thread, HeartbeatThread):
                thread.stop()
            elif thread:
                thread.close()
        self._kept.close()
        is_end_known = False
        if hasattr(self, "_answers"):
            self._attempts.close_journal(is_needed=not self._save_unanswered())
            is_end_known = self._answers.is_dead or self._shutdown.is_answered
        self._supervisor.close()
        self._fast_recovery.close(is_end_known=is_end_known)
        self._folder.remove()
        status_file.remove_status(self._options.name)
        self._selector.close()
        self._client.close()
