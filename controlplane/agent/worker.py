"""The worker: one registration, lived through on the main thread.

Three threads. The main one owns the attempts and the child processes and never waits for the network, so that the
fence, a signal or a timeout is acted on while a call hangs. The heart beats, the courier carries reports and claims;
both hand what they hear to `_inbox` and ring the bell.
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

from controlplane.agent import leftovers, probe
from controlplane.agent.attempts import PATIENCE, Attempts
from controlplane.agent.backoff import full_jitter
from controlplane.agent.bell import Bell, Interrupted
from controlplane.agent.client import Client, Refused, Unreachable
from controlplane.agent.courier import Claimed, Courier, Reported
from controlplane.agent.fence import Fence
from controlplane.agent.folder import Folder
from controlplane.agent.heart import Heart
from controlplane.agent.options import Options
from controlplane.agent.outbox import Outbox
from controlplane.agent.registration import Server, register
from controlplane.agent.supervisor import Supervisor

log = structlog.get_logger()
LAST_WORDS = 3.0  # seconds to be heard once everything has ended; reports have what is left of the grace period
HEAD_START = 5.0  # seconds for what an agent before us left, before we register
FORCED_PATIENCE = 1.0  # seconds from SIGTERM to SIGKILL when the grace period is over
LOOK = 1.0  # seconds: the clocks are looked at at least so often, for select() does not count time asleep


class Purged(Exception):
    """The control plane no longer knows this server; nothing of it runs any more."""


class Worker:
    def __init__(self, options: Options, bell: Bell) -> None:
        self._options, self._bell = options, bell
        self._client = Client(options.url)
        self._selector = selectors.DefaultSelector()
        self._selector.register(bell, selectors.EVENT_READ)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._supervisor = Supervisor(self._selector)
        self._outbox = Outbox()
        self._fence = Fence()
        self._folder = Folder()
        self._attempts = Attempts(
            self._supervisor, self._outbox, options.allowances, self._fence, self._folder.path, options.environment
        )
        self._fenced = threading.Event()  # killed for the fence by another thread, not yet taken note of here
        self._heard = False
        self._blocked = False  # cordon, drain or maintenance
        self._drain_at: float | None = None  # wall clock
        self._ending: str | None = None  # why: a signal's name, or the code of a refusal
        self._signals = 0
        self._forced = False
        self._grace_until = self._give_up_at = self._claims_until = float("inf")  # monotonic
        self._left = leftovers.found(options.state, self._client)
        self._dead = False  # declared so: nothing that we say counts
        self._purged = False
        self.exit_status: int | None = None

    def run(self) -> int:
        """The exit status. Raises Refused at registration, Interrupted before it, Purged at any time after."""
        self._bell.interrupting = True
        if self._bell.signals:  # it came while an earlier registration was being cleared away
            raise Interrupted(signal.Signals(self._bell.signals[-1]).name)
        try:
            for left in self._left:
                left.send(HEAD_START)
            self._server = register(self._client, self._options.token, self._options.description(), time.sleep)
            self._bell.interrupting = False
            log.info(f"Worker registered with ID: {self._server.id}", name=self._options.name, tags=self._options.tags)
            self._begin(self._server)
            while self.exit_status is None:
                self.turn()
            if self._purged:
                raise Purged(self._server.id)
            return self.exit_status
        finally:
            self._close()

    def _begin(self, server: Server) -> None:
        # Several tries must fit into the timeout, whatever hangs.
        self._client.timeout = max(0.5, min(10.0, server.config.timeout / 4))
        self._fence.renew(server.registered_at, server.fence_after)
        self._supervisor.adopt()
        self._supervisor.fence_at(self._warden_deadline())
        self._heart = Heart(
            server,
            self._fence,
            holdings=self._attempts.holdings,
            metrics=self._metrics,
            hear=self._deliver,
            fenced=self._kill_for_the_fence,
        )
        self._courier = Courier(server, self._outbox, self._options.poll, self._deliver, self._heart.nudge)
        psutil.cpu_percent()  # the first reading is always 0
        self._heart.start()
        self._courier.start()

    # In other threads

    def _deliver(self, message: Any) -> None:
        self._inbox.put(message)
        self._bell.ring()

    def _kill_for_the_fence(self) -> None:
        # The note comes first: whoever sees a child dead of this must find it.
        self._fenced.set()
        self._supervisor.kill_all()
        self._bell.ring()

    def _metrics(self) -> dict[str, Any]:
        holdings = self._attempts.holdings()
        return {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
            "load_1m": round(os.getloadavg()[0], 2),
            "running": len(holdings.running),
            "claimed": len(holdings.claimed),
        }

    # On the main thread

    def turn(self) -> None:
        """Wait for something, then do everything that is due."""
        ready = self._selector.select(self._wait())
        self._enforce_fence()
        self._bell.hush()
        while self._bell.signals:
            self._on_signal(self._bell.signals.popleft())
        self._supervisor.stream(ready)
        for ended in self._supervisor.reap():
            self._enforce_fence()  # it may have died of the fence since we looked
            self._guard(self._attempts.ended, ended)
        self._read_inbox()
        if self._attempts.has_stopped_more():
            self._heart.nudge()
        if self.exit_status is not None:
            return
        self._guard(self._attempts.time_out)
        self._guard(self._attempts.hand_on)
        self._enforce_drain()
        if self._ending:
            self._wind_down()
        self._ask_for_work()

    def _wait(self) -> float:
        now = time.monotonic()
        due = [self._supervisor.next_kill_at(), self._attempts.next_timeout(), self._attempts.next_to_hand_on()]
        due += [self._grace_until, self._give_up_at]
        waits = [LOOK, *(at - now for at in due if at is not None)]
        if self._attempts.live and (remaining := self._fence.remaining()):
            waits.append(remaining)
        return max(0.0, min(waits))

    def _enforce_fence(self) -> None:
        if not (self._fenced.is_set() or self._fence.passed()):
            return
        self._fenced.clear()
        self._attempts.release("fenced")

    def _on_signal(self, number: int) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):
            return
        name = signal.Signals(number).name
        log.info(f"Received {name} signal")
        self._signals += 1
        if self._signals > 1:
            self._force("forced")
        elif not self._ending:
            self._end(name)

    def _read_inbox(self) -> None:
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._guard(self._take_in, message)

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception:  # an answer, or a job, that nobody foresaw must not cost the jobs that run
            log.exception("Not understood", step=step.__name__)

    def _take_in(self, message: Any) -> None:
        if isinstance(message, Claimed):
            self._courier.settle()
            self._attempts.claimed(message.items)
        elif isinstance(message, Reported):
            self._attempts.answered(message.report, message.result)
        elif isinstance(message, Refused):
            self._on_refusal(message)
        else:
            self._on_answer(message)

    def _on_answer(self, answer: dict[str, Any]) -> None:
        self._heard = True
        self._courier.heard()
        self._supervisor.fence_at(self._warden_deadline())
        self._attempts.cancel(answer.get("cancel") or [])
        self._attempts.taken(answer.get("lost") or [])
        maintenance, drain = bool(answer.get("maintenance")), answer.get("drain")
        self._blocked = maintenance or bool(drain) or bool(answer.get("cordoned"))
        deadline = (drain or {}).get("deadline")
        self._drain_at = datetime.fromisoformat(deadline).timestamp() if deadline else None
        if not self._ending:
            self._heart.say("MAINTENANCE" if maintenance else "RUNNING")
        config = self._server.config
        try:
            probe.write(
                self._options.name, self._server.id, str(answer.get("state")), config.timeout, self._fence.clock()
            )
        except OSError as error:
            log.warning("Status file not written: --check will fail", why=str(error))

    def _on_refusal(self, refused: Refused) -> None:
        if refused.status == 410:
            log.warning("This server was purged: registering anew", server=self._server.id)
            self._die()
            self._purged, self.exit_status = True, 1
        if refused.code == "server_not_running":
            log.error("Declared dead, its jobs are elsewhere: killing all", server=self._server.id)
            self._die()
            self.exit_status = 1
        elif (refused.code == "server_disconnected" or refused.status in (401, 403)) and not self._ending:
            log.error("Disconnected: finishing what is ours", code=refused.code, detail=refused.detail)
            self._end(refused.code or "token_refused")

    def _enforce_drain(self) -> None:
        # Their clock set the deadline: judge it by their clock.
        if self._drain_at is not None and time.time() + self._client.clock_offset >= self._drain_at:
            self._attempts.release("drain_deadline", PATIENCE)

    def _ask_for_work(self) -> None:
        open_ = self._heard and not (self._blocked or self._ending or self._fence.passed())
        self._courier.want(self._options.concurrency - self._attempts.live if open_ else 0)
        self._courier.nudge()

    # The end

    def _end(self, why: str) -> None:
        self._ending = why
        self._grace_until = time.monotonic() + self._server.config.termination_grace_period
        self._courier.want(0)
        self._attempts.withhold("terminating")
        if (fence := self._server.config.last_fence) is not None:
            self._fence.shorten(fence)
            self._supervisor.fence_at(self._warden_deadline())
        self._heart.say("TERMINATING")

    def _force(self, reason: str) -> None:
        if not self._forced:
            self._forced, self._grace_until = True, float("inf")
            log.warning("Killing what is left", jobs=self._attempts.live, reason=reason)
            self._attempts.release(reason, FORCED_PATIENCE)
            self._give_up_at = time.monotonic() + (FORCED_PATIENCE + LAST_WORDS if self._attempts.live else 0)

    def _wind_down(self) -> None:
        now = time.monotonic()
        if self._attempts.live:
            if now >= self._grace_until:
                self._force("grace_period")
            if now < self._give_up_at:
                return
        elif self._give_up_at == float("inf"):
            self._grace_until, self._give_up_at = float("inf"), max(self._grace_until, now + LAST_WORDS)
            self._leave()  # now, for whoever waits for us may have less patience than we
        if self._outbox or self._claims_until == float("inf"):
            self._claims_until = now + LAST_WORDS  # a claim under way is no reason to wait for longer
        claiming = self._courier.claiming
        if (self._outbox or (claiming and now < self._claims_until)) and now < self._give_up_at:
            return
        unsaid = bool(self._outbox) or claiming
        log.info(f"Deregistering worker ID: {self._server.id}", why=self._ending, unsent_reports=len(self._outbox))
        # Who has ended has its jobs given away at once: not while there is more to say of them.
        heard = not (self._attempts.live or self._outbox) and self._say_the_last_word()
        graceful = self._ending in ("SIGTERM", "SIGINT") and not self._forced
        self.exit_status = 0 if heard and graceful and not unsaid else 1

    def _say_the_last_word(self) -> bool:
        self._client.timeout = min(self._client.timeout, LAST_WORDS / 2)
        self._heart.stop()
        self._heart.join(self._client.timeout)  # its beat must not follow ours
        state = "TERMINATED_FORCED" if self._forced else "TERMINATED_GRACEFULLY"
        now = time.monotonic()
        failures, until = 0, max(now + 1, min(now + LAST_WORDS, self._give_up_at))
        while True:
            try:
                self._server.beat({"state": state})
                return True
            except Unreachable as error:
                failures += 1
                pause = full_jitter(failures, 1.0)
                if time.monotonic() + pause >= until:
                    log.warning("Not heard at the end", why=str(error))
                    return False
                time.sleep(pause)
            except Refused as refused:
                log.warning("Last heartbeat refused", code=refused.code, detail=refused.detail)
                return False

    def _leave(self) -> None:
        """What nobody has answered stays on disk, for the next start."""
        reports = [] if self._dead else self._outbox.unanswered()
        try:
            leftovers.keep(self._options.state, self._server, reports)
        except OSError as error:
            log.error("Reports not kept: their jobs run again", reports=len(reports), why=str(error))
        else:
            if reports and self.exit_status is not None:
                log.warning("Reports kept for the next start", reports=len(reports), folder=str(self._options.state))

    def _die(self) -> None:
        self._dead = True
        self._supervisor.kill_all()
        until = time.monotonic() + LAST_WORDS
        while len(self._supervisor) and time.monotonic() < until:
            self._selector.select(0.2)
            self._bell.hush()
            self._supervisor.reap()

    def _warden_deadline(self) -> float | None:
        # A little after ours, which reports what it does; the control plane gives nothing away for 20 % of the timeout.
        deadline = self._fence.deadline
        return None if deadline is None else deadline + self._server.config.timeout * 0.05

    def _close(self) -> None:
        for thread in (getattr(self, "_heart", None), getattr(self, "_courier", None)):
            if isinstance(thread, Heart):
                thread.stop()
            elif thread:
                thread.close()
        for left in self._left:
            left.close()
        if hasattr(self, "_server"):
            self._leave()
        self._supervisor.close()
        self._folder.remove()
        probe.forget(self._options.name)
        self._selector.close()
        self._client.close()
