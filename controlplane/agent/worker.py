"""The worker: one registration, lived through on the main thread.

Three threads. The main one owns the attempts and the child processes and never waits for the network, so that the
fence, a signal or a timeout is acted on while a call hangs. One thread beats, another transports
reports and claims; both put what they receive into `_inbox` and wake the main thread.
"""

from __future__ import annotations

import os
import queue
import selectors
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import psutil
import structlog

from controlplane.agent import leftovers, probe, runtimes, status_file
from controlplane.agent.attempts import AttemptTracker
from controlplane.agent.client import Client, Refused
from controlplane.agent.containers import clear_containers
from controlplane.agent.fence import Fence
from controlplane.agent.folder import Folder
from controlplane.agent.heart import HeartbeatThread
from controlplane.agent.options import Options
from controlplane.agent.outbox import Outbox
from controlplane.agent.process_metrics import MIB, ProcessMetrics
from controlplane.agent.registration import RegisteredServer, register_server
from controlplane.agent.runtimes import RuntimeWatch
from controlplane.agent.shutdown import LAST_WORDS, Shutdown
from controlplane.agent.supervisor import Supervisor
from controlplane.agent.transport import ClaimResult, ReportResult, start_transport
from controlplane.agent.verdicts import KILL_PATIENCE
from controlplane.agent.wakeup import InterruptedBySignal, Wakeup

log = structlog.get_logger()
HEAD_START = 5.0  # seconds for what an agent before us left, before we register
LOOK_INTERVAL = 1.0  # seconds: the clocks are looked at at least so often, for select() does not count time asleep


class ServerPurged(Exception):
    """The control plane no longer knows this server; nothing of it runs any more."""


class Worker:
    def __init__(self, options: Options, wakeup: Wakeup) -> None:
        self._options, self._wakeup = options, wakeup
        self._client = Client(options.url)
        self._selector = selectors.DefaultSelector()
        self._selector.register(wakeup, selectors.EVENT_READ)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._supervisor = Supervisor(self._selector, options.max_tasks_per_child)
        self._outbox = Outbox()
        self._fence = Fence()
        self._folder = Folder()
        self._attempts = AttemptTracker(
            self._supervisor, self._outbox, options.policy, self._fence, self._folder, options.environment,
            options.task_timeout, options.memory_limit, options.secrets,
        )  # fmt: skip
        self._cordon = probe.SelfCordon()
        self._probe = probe.Probe(
            options.probe,
            options.probe_interval,
            options.probe_timeout,
            self._supervisor,
            options.environment,
            self._cordon,
            lambda: self._heart.act_now(),
        )
        self._runtimes = RuntimeWatch(
            options.runtimes, self._supervisor, options.environment, self._cordon, lambda: self._heart.act_now()
        )
        self._fenced = threading.Event()  # killed for the fence by another thread, not yet taken note of here
        self._was_answered = False
        self._blocked = False  # cordon, drain or maintenance
        self._drain_at: float | None = None  # wall clock
        self._signals = 0
        self._leftovers = leftovers.load_leftovers(options.state, self._client)
        self._is_dead = False  # declared so: nothing that we say counts
        self._is_purged = False
        self.exit_status: int | None = None

    def run(self) -> int:
        """The exit status. Raises Refused at registration, Interrupted before it, Purged at any time after."""
        self._wakeup.is_interrupting = True
        if self._wakeup.signals:  # it came while an earlier registration was being cleared away
            raise InterruptedBySignal(signal.Signals(self._wakeup.signals[-1]).name)
        try:
            self._clear_containers()
            for leftover in self._leftovers:
                leftover.send_reports(HEAD_START)
            self._server = register_server(self._client, self._options.token, self._options.description(), time.sleep)
            self._wakeup.is_interrupting = False
            log.info(f"Worker registered with ID: {self._server.id}", name=self._options.name, tags=self._options.tags)
            self._start_threads(self._server)
            while self.exit_status is None:
                self.run_once()
            if self._is_purged:
                raise ServerPurged(self._server.id)
            return self.exit_status
        finally:
            self._close_resources()

    def _clear_containers(self) -> None:
        """Of an agent before us, whose code runs elsewhere by now. One of our name that lives has its own."""
        if status_file.is_running(self._options.name):
            log.warning("Another agent of this name runs here: its containers are left alone", name=self._options.name)
        else:
            clear_containers(list(self._options.policy.runners.values()), self._options.environment)

    def _start_threads(self, server: RegisteredServer) -> None:
        # Several tries must fit into the timeout, whatever hangs.
        self._client.timeout = max(0.5, min(10.0, server.config.timeout / 4))
        self._fence.renew_deadline(server.registered_at, server.fence_after)
        self._supervisor.adopt()
        self._supervisor.set_fence_deadline(self._reaper_deadline())
        self._heart = HeartbeatThread(
            server,
            self._fence,
            list_held_attempts=self._attempts.list_held_attempts,
            metrics=self._read_metrics,
            on_answer=self._put_in_inbox,
            on_fenced=self._kill_for_fence,
            cordon=self._cordon,
        )
        psutil.cpu_percent()  # the first reading is always 0
        self._process_metrics = ProcessMetrics()
        self._heart.start()
        self._transport = start_transport(
            server, self._outbox, self._options.poll, self._put_in_inbox, self._heart.act_now
        )
        self._shutdown = Shutdown(
            server, self._heart, self._transport, self._attempts, self._outbox, self._save_unanswered
        )

    # In other threads

    def _put_in_inbox(self, message: Any) -> None:
        self._inbox.put(message)
        self._wakeup.wake_up()

    def _kill_for_fence(self) -> None:
        # The note comes first: whoever sees a child dead of this must find it.
        self._fenced.set()
        self._supervisor.kill_all_children()
        self._wakeup.wake_up()

    def _read_metrics(self) -> dict[str, Any]:
        held = self._attempts.list_held_attempts()
        views = [self._supervisor.look_at(running["attempt"]) for running in held.running]
        return {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
            "load_1m": round(os.getloadavg()[0], 2),
            **self._process_metrics.read(),
            "tasks_cpu_seconds": round(sum(view.cpu_seconds for view in views if view), 1),
            "tasks_memory_mib": round(sum(view.memory_bytes for view in views if view) / MIB, 1),
            "running": len(held.running),
            "claimed": len(held.claimed),
        }

    # On the main thread

    def run_once(self) -> None:
        """Wait for something, then do everything that is due."""
        ready = self._selector.select(self._seconds_to_wait())
        self._enforce_fence()
        self._wakeup.clear_wakeups()
        while self._wakeup.signals:
            self._handle_signal(self._wakeup.signals.popleft())
        self._supervisor.transfer_ready(ready)
        for child_exit in self._supervisor.reap_children():
            self._enforce_fence()  # it may have died of the fence since we looked
            self._guard(self._owner_of(child_exit.key).record_exit, child_exit)
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
            self._guard(self._runtimes.look)
            self._guard(self._probe.advance)
        self._request_work()

    def _owner_of(self, key: str) -> AttemptTracker | probe.Probe | RuntimeWatch:
        """Of a child."""
        if key == probe.KEY:
            return self._probe
        return self._runtimes if key.startswith(runtimes.KEY) else self._attempts

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        due = [self._supervisor.next_kill_at(), self._attempts.next_timeout_at(), self._attempts.next_output_at()]
        due += [self._shutdown.next_step_at, self._attempts.next_memory_look_at()]
        due += [] if self._shutdown.reason else [self._probe.next_step_at()]
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
            self._guard(self._handle_message, message)

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception:  # an answer, or a job, that nobody foresaw must not cost the jobs that run
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
        self._was_answered = True
        self._transport.retry_now()
        self._supervisor.set_fence_deadline(self._reaper_deadline())
        self._attempts.cancel_attempts(answer.get("cancel") or [])
        self._attempts.kill_lost_attempts(answer.get("lost") or [])
        maintenance, drain = bool(answer.get("maintenance")), answer.get("drain")
        self._blocked = maintenance or bool(drain) or bool(answer.get("cordoned"))
        deadline = (drain or {}).get("deadline")
        self._drain_at = datetime.fromisoformat(deadline).timestamp() if deadline else None
        if not self._shutdown.reason:
            self._heart.report_state("MAINTENANCE" if maintenance else "RUNNING")
        config = self._server.config
        try:
            status_file.write_status(
                self._options.name, self._server.id, str(answer.get("state")), config.timeout, self._fence.clock()
            )
        except OSError as error:
            log.warning("Status file not written: --check will fail", why=str(error))

    def _handle_refusal(self, refused: Refused) -> None:
        if refused.status == 410:
            log.warning("This server was purged: registering again", server=self._server.id)
            self._kill_everything()
            self._is_purged, self.exit_status = True, 1
        if refused.code == "server_not_running":
            log.error("Declared dead, its jobs are elsewhere: killing all", server=self._server.id)
            self._kill_everything()
            self.exit_status = 1
        elif (refused.code == "server_disconnected" or refused.status in (401, 403)) and not self._shutdown.reason:
            log.error("Disconnected: finishing the jobs that run here", code=refused.code, detail=refused.detail)
            self._start_shutdown(refused.code or "token_refused")

    def _enforce_drain(self) -> None:
        # Their clock set the deadline: judge it by their clock.
        if self._drain_at is not None and time.time() + self._client.clock_offset >= self._drain_at:
            self._attempts.release_attempts("drain_deadline", KILL_PATIENCE)

    def _request_work(self) -> None:
        is_fit = self._probe.is_passing and not self._runtimes.missing
        blocked = self._blocked or self._shutdown.reason or self._fence.has_passed() or not is_fit
        open_ = self._was_answered and not blocked
        self._transport.request_slots(self._options.concurrency - self._attempts.live_count if open_ else 0)
        self._transport.act_now()

    # The end

    def _start_shutdown(self, why: str) -> None:
        if (fence := self._server.config.last_fence_seconds) is not None:
            self._fence.shorten_deadline(fence)
            self._supervisor.set_fence_deadline(self._reaper_deadline())
        self._shutdown.start(why)

    def _save_unanswered(self) -> None:
        """What nobody has answered stays on disk, for the next start."""
        reports = [] if self._is_dead else self._outbox.unanswered_reports()
        try:
            leftovers.save_reports(self._options.state, self._server, reports)
        except OSError as error:
            log.error("Reports not kept: their jobs run again", reports=len(reports), why=str(error))
        else:
            if reports and self.exit_status is not None:
                log.warning("Reports kept for the next start", reports=len(reports), folder=str(self._options.state))

    def _kill_everything(self) -> None:
        self._is_dead = True
        self._supervisor.kill_all_children()
        until = time.monotonic() + LAST_WORDS
        while len(self._supervisor) and time.monotonic() < until:
            self._selector.select(0.2)
            self._wakeup.clear_wakeups()
            self._supervisor.reap_children()

    def _reaper_deadline(self) -> float | None:
        # A little after ours, which reports what it does; the control plane gives nothing away for 20 % of the timeout.
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
            self._save_unanswered()
        self._supervisor.close()
        self._folder.remove()
        status_file.remove_status(self._options.name)
        self._selector.close()
        self._client.close()
