"""What a worker's main process says of each task, and what it does when a child was lost with one."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]
from billiard.exceptions import WorkerLostError
from celery.exceptions import Ignore
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.state import task_ready
from kombu.utils.imports import symbol_by_name

from controlplane.agent.celery.restoring import Outcome, quarantine_text
from controlplane.agent.secret_values import mask_arguments

if TYPE_CHECKING:
    from controlplane.agent.celery.bootsteps import Protection

    Base = Any
else:
    Base = object

log = get_logger(__name__)
DIES_WITH_ITS_PARENT = sys.platform == "linux"
TEXT = 500  # characters of a result or an error
TRACEBACK = 2000  # characters, its end


class Protected(Base):
    """Mixed into the Request class of each task. Its hooks run in the main process only."""

    protection: Protection
    _given = False
    _outcome: str | None = None
    _text: str | None = None
    _traceback: str | None = None
    _is_reported = False

    def __init_subclass__(cls) -> None:
        # Celery makes a subclass for each task, whose `on_success` calls no other's: ours goes around it.
        super().__init_subclass__()
        cls.on_success = _with_end(cls.on_success)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tag = str(self._message.delivery_tag)
        self.is_job = bool(self.protection.jobs and self.protection.jobs.has(self))
        self.attempt = self.id if self.is_job else _attempt_id()
        self.protection.open.add(self.tag)
        self.protection.tell(*self.line())

    def line(self) -> list[Any]:
        """For the heart's ledger."""
        request, info = self._request_dict, self.delivery_info
        eta = self.eta.isoformat() if self.eta else None
        queue = info.get("routing_key") or ""
        is_again = bool(info.get("redelivered") or request.get("redelivered") or request.get("losses"))
        retries = request.get("retries") or 0
        line = ["+", self.tag, self.id, self.name, queue, eta, retries, self.root_id]
        line += [self.parent_id, self.attempt, is_again or retries > 0]
        if self.protection.options.show_arguments:
            line.append(mask_arguments(f"{self.argsrepr} {self.kwargsrepr}")[:TEXT])
        return line

    def is_given(self) -> None:
        """To a child of the pool: from now on its code may run."""
        self._given = True
        self.protection.tell(">", self.tag, None)

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        # Of a child that was given it the number is needed only to end it, or where it would outlive its parent.
        if self.is_job or not (self._given and DIES_WITH_ITS_PARENT):
            self.protection.tell(">", self.tag, pid)
        super().on_accepted(pid, time_accepted)

    def on_retry(self, exc_info: Any) -> None:
        self._outcome, self._text = "RETRIED", _text(exc_info)
        super().on_retry(exc_info)
        self.tell_end("RETRIED")

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if not soft:
            self._outcome, self._text = "FAILED", f"TimeLimitExceeded: {timeout} s"
        super().on_timeout(soft, timeout)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        exception = _raised(exc_info)
        lost = isinstance(exception, (WorkerLostError, SystemExit, KeyboardInterrupt))
        if lost and self.task.acks_late and not self.acknowledged:
            if self._already_cancelled or self._already_revoked or self._success_was_stored():
                return super().on_failure(exc_info, send_failed_event, return_ok)
            return self._lose(exception)
        if type(exception).__name__ not in ("Retry", "Ignore", "Reject", "Terminated"):
            self._outcome, self._text = "FAILED", _text(exc_info)
            self._traceback = str(exc_info.traceback or "")[-TRACEBACK:]
        super().on_failure(exc_info, send_failed_event, return_ok)
        if self.acknowledged:
            self.tell_end("COMPLETED" if isinstance(exception, Ignore) else "FAILED")

    def _announce_revoked(self, *args: Any, **kwargs: Any) -> None:
        self._outcome = self._outcome or "REVOKED"
        super()._announce_revoked(*args, **kwargs)
        self.tell_end("REVOKED")

    def acknowledge(self) -> None:
        if not self.acknowledged:
            self.protection.settled(self.tag)
            # Acknowledged early, it goes on.
            if self.task.acks_late or self._outcome:
                self.tell_end("COMPLETED" if self.time_start else "DROPPED")
        super().acknowledge()

    def tell_end(self, default: str) -> None:
        """How it ended, once."""
        if not self._is_reported:
            self._is_reported = True
            seconds = round(time.time() - self.time_start, 3) if self.time_start else 0.0
            line = ["-", self.tag, self._outcome or default, seconds, self._text, self._traceback]
            self.protection.tell(*line)
            if self.is_job and self.protection.jobs:
                self.protection.jobs.ended(self, line)

    def reject(self, requeue: bool = False) -> None:
        if not self.acknowledged:
            self.protection.settled(self.tag)
            self._outcome = "RETURNED" if requeue else self._outcome or "FAILED"
            self.tell_end(self._outcome)
        super().reject(requeue=requeue)

    def _lose(self, exception: BaseException) -> None:
        """The child died with it and we live. Acknowledging would lose it, requeueing would loop for ever."""
        task_ready(self)
        if state.should_terminate:
            return  # a cold shutdown killed it: the heart gives it back
        reason = str(exception)[:200]
        if self.is_job:  # whether there is another try is for the control plane to say
            self._outcome, self._text = "FAILED", f"WORKER_CRASHED: {reason}"
            self.acknowledge()
            return
        try:
            returned = self.protection.give_back(self._message, self.tag, reason, suspect=True)
        except Exception as error:
            log.error("Task %s[%s] lost with its child, not given back yet: %r", self.name, self.id, error)
            if self.protection.holdings is None:
                self.reject(requeue=True)
            return  # on Redis it stays ours, and goes back when we connect anew or end
        self.acknowledged = True
        self.protection.open.discard(self.tag)
        is_quarantined = returned.outcome is Outcome.QUARANTINED
        self._outcome = "QUARANTINED" if is_quarantined else "LOST"
        self._text = f"WORKER_CRASHED: {reason}; {returned.outcome.name.lower()}"
        if is_quarantined:
            self._text = f"WORKER_CRASHED: {quarantine_text(self.name, returned.losses, reason)}"
        self.tell_end(self._outcome)
        log.warning("Task %s[%s] lost with its child (%s): %s", self.name, self.id, reason, returned.outcome.name)
        if is_quarantined:
            text = quarantine_text(self.name, returned.losses, reason)
            self.protection.fail(self.task, self.id, self._context, text, self.store_errors)
            self.protection.tell("reported", self.id)


def _with_end(on_success: Callable[..., None]) -> Callable[..., None]:
    """It, and then the end of what succeeded is reported."""

    def hook(self: Protected, outcome: tuple[bool, Any, float], **kwargs: Any) -> None:
        failed, result, _ = outcome
        if not failed and self.protection.options.show_arguments:
            self._text = str(result)[:TEXT]
        on_success(self, outcome, **kwargs)
        if not failed:
            self.tell_end("COMPLETED")

    return hook


def _attempt_id() -> str:
    """A version 7 UUID: ids sort by age. Python 3.11 has none."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10), "big")
    return str(uuid.UUID(int=number & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62))


def _raised(exc_info: Any) -> BaseException:
    exception = exc_info.exception
    cause: BaseException = exception.exc if isinstance(exception, ExceptionWithTraceback) else exception
    return cause


def _text(exc_info: Any) -> str:
    exception = _raised(exc_info)
    return f"{type(exception).__name__}: {exception}"[:TEXT]


def request_class(base: Any, protection: Protection) -> type:
    """`base` (a class, or its name) with our hooks; the user's own hooks stay."""
    base = symbol_by_name(base)
    if issubclass(base, Protected):
        return base
    return type("Protected" + base.__name__, (Protected, base), {"protection": protection})


class Kept:
    """Mixed into the Message class of a Redis channel: what is settled while or after its connection is lost goes
    through another one. Kombu's own raises AttributeError there, which ends the worker, or logs and forgets."""

    protection: Protection

    def ack(self, multiple: bool = False) -> None:
        message: Any = self
        if message.channel.closed and not message.acknowledged:
            self.protection.acknowledge_later(message.delivery_tag)
            message._state = "ACK"
            return
        try:
            super().ack(multiple)  # type: ignore[misc]
        except self.protection.errors:
            self.protection.acknowledge_later(message.delivery_tag)

    def reject(self, requeue: bool = False) -> None:
        message: Any = self
        if message.channel.closed and not message.acknowledged:
            if requeue:
                self.protection.give_back(message, message.delivery_tag, "requeued", suspect=False)
            else:
                self.protection.acknowledge_later(message.delivery_tag)
            message._state = "REJECTED"
        else:
            super().reject(requeue)  # type: ignore[misc]

    def requeue(self) -> None:
        self.reject(requeue=True)


def message_class(base: type, protection: Protection) -> type:
    return type("Kept" + base.__name__, (Kept, base), {"protection": protection})
