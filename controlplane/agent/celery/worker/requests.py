"""Protected requests. They report each task to the heart.

If a task's code ends its process, they return the task to its queue.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.state import task_ready
from kombu.utils.imports import symbol_by_name

from controlplane.agent.celery.broker.rabbitmq import REJECTED
from controlplane.agent.celery.broker.restoring import Outcome, quarantine_text
from controlplane.agent.celery.messages import FailureStored, TaskEnded, TaskHeld, TaskRunning
from controlplane.agent.celery.worker.containment import as_plain_failure, raised
from controlplane.agent.celery.worker.context import ProtectedRequest, WorkerContext, make_attempt_id
from controlplane.agent.celery.worker.failures import store_failure
from controlplane.agent.celery.worker.own_queue import OwnQueue
from controlplane.agent.celery.worker.settlement import Settlement
from controlplane.agent.secrets.values import mask_addresses, mask_arguments

if TYPE_CHECKING:
    Base = Any
else:
    Base = object

log = get_logger(__name__)
DIES_WITH_ITS_PARENT = sys.platform == "linux"
TEXT = 500  # largest number of characters of a result or an error
TRACEBACK = 2000  # characters that are kept of its end


class Protected(ProtectedRequest, Base):
    """Mixin for the Request class of each task. Its hooks run only in the main process."""

    context: WorkerContext
    settlement: Settlement
    jobs: OwnQueue | None
    _outcome: str | None = None
    _text: str | None = None
    _traceback: str | None = None
    _is_lost = False  # True if its message was returned or quarantined
    is_held = False  # True if its message was acknowledged early and a copy is kept

    def __init_subclass__(cls) -> None:
        # Celery makes a subclass for each task. Its `on_success` does not call super(), so it is wrapped.
        super().__init_subclass__()
        cls.on_success = _with_end(cls.on_success)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.since = time.monotonic()
        # RabbitMQ's delivery tags start again at 1 with each connection.
        self.tag = str(self._message.delivery_tag) if self.context.unacked else make_attempt_id()
        self.is_job = bool(self.jobs and self.jobs.has(self))
        self.attempt = self.id if self.is_job else make_attempt_id()
        self.context.record_received(self.tag, self.attempt)
        if self.settlement.early:
            self.settlement.early.on_received(self)
        self.held = self.describe()
        self.context.send(self.held)

    def describe(self) -> TaskHeld:
        """Return the message for the heart."""
        request, info = self._request_dict, self.delivery_info
        eta = self.eta.isoformat() if self.eta else None
        queue = info.get("routing_key") or ""
        headers = self._message.headers or {}  # with protocol 1 the request has other headers
        is_again = bool(info.get("redelivered") or headers.get("redelivered") or headers.get("losses"))
        retries = request.get("retries") or 0
        args = None
        if self.context.options.show_arguments:
            args = mask_addresses(mask_arguments(f"{self.argsrepr} {self.kwargsrepr}"))[:TEXT]
        return TaskHeld(
            self.tag, self.id, self.name, queue, eta, retries, self.root_id, self.parent_id, self.attempt,
            is_again or retries > 0, args, bool(self.task.acks_late),
        )  # fmt: skip

    def record_given(self) -> None:
        """Record that the request is passed to a child of the pool. Its code may run from now on."""
        self.is_given = True
        self.context.send(TaskRunning(self.tag, None))

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        # The child with the request ends together with its parent, so the heart needs the process id only for jobs.
        if self.is_job or not (self.is_given and DIES_WITH_ITS_PARENT):
            self.context.send(TaskRunning(self.tag, pid))
        super().on_accepted(pid, time_accepted)

    def revoked(self) -> bool:
        if REJECTED in (self._message.headers or {}):
            # The task ran after an early acknowledgement and was rejected. Now RabbitMQ may make it a dead letter.
            task_ready(self)
            self._outcome = "RETURNED"
            self.reject(requeue=False)
            return True
        return bool(super().revoked())

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        if self.is_held and emit_retry:
            log.info("Task %s[%s] continues without its connection: it is acknowledged early", self.name, self.id)
            return
        super().cancel(pool, signal=signal, emit_retry=emit_retry)

    def on_retry(self, exc_info: Any) -> None:
        self._outcome, self._text = "RETRIED", _text(exc_info)
        super().on_retry(exc_info)
        self._send_end("RETRIED")

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if not soft and self._returns_after(limit := TimeLimitExceeded(timeout)):
            self._lose(limit)  # pools without processes report nothing else
        if self._is_lost:
            return None  # its failure is stored if it is quarantined
        if not soft:
            self._outcome, self._text = "FAILED", f"TimeLimitExceeded: {timeout} s"
        try:
            return super().on_timeout(soft, timeout)
        except Exception as error:
            return self._settle(error)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        exc_info = as_plain_failure(exc_info, is_stored=return_ok)
        try:
            if self._returns_after(exception := raised(exc_info)):
                if isinstance(exception, TimeLimitExceeded) or not self._success_was_stored():
                    return self._lose(exception)
            elif type(exception).__name__ not in ("Retry", "Ignore", "Reject", "Terminated"):
                self._outcome, self._text = "FAILED", _text(exc_info)
                self._traceback = str(exc_info.traceback or "")[-TRACEBACK:]
            super().on_failure(exc_info, send_failed_event, return_ok)
        except Exception as error:
            self._settle(error)
        if self.acknowledged:
            self._send_end("COMPLETED" if isinstance(exception, Ignore) else "FAILED")

    def _announce_revoked(self, *args: Any, **kwargs: Any) -> None:
        self._outcome = self._outcome or "REVOKED"
        super()._announce_revoked(*args, **kwargs)
        self._send_end("REVOKED")

    def acknowledge(self) -> None:
        if not self.acknowledged:
            self.context.record_acknowledged(self.tag, self.attempt)
            # With acks_late=False, Celery acknowledges the task at its start, so it has not ended yet.
            if self.task.acks_late or self._outcome:
                self._send_end("COMPLETED" if self.time_start else "DROPPED")
        super().acknowledge()

    def _send_end(self, default: str) -> None:
        """Send the end of this task to the heart, once. `default` is the outcome if no hook has set an outcome."""
        if not self.is_reported:
            seconds = round(time.time() - self.time_start, 3) if self.time_start else 0.0
            end = TaskEnded(self.tag, self._outcome or default, seconds, self._text, self._traceback)
            if self.is_job and self.jobs:
                self.jobs.record_end(self, end)
            else:
                has_started = self.is_given or bool(self.time_start)
                end = self.context.ends.keep(self.held, end, self.since, has_started=has_started)
            self.is_reported = True  # from now on a new heart gets the kept end, and not the task as held
            self.context.send(end)

    def reject(self, requeue: bool = False) -> None:
        if not self.acknowledged:
            if requeue:
                self.context.record_returned(self.tag, self.attempt)
            else:
                self.context.record_acknowledged(self.tag, self.attempt)
            self._outcome = "RETURNED" if requeue else self._outcome or "FAILED"
            self._send_end(self._outcome)
        super().reject(requeue=requeue)

    def _returns_after(self, exception: BaseException) -> bool:
        """Return True if the task must return to its queue, because its code ended its process or exceeded its time."""
        if not self.task.acks_late or self.acknowledged or self._already_cancelled or self._already_revoked:
            return False
        if isinstance(exception, TimeLimitExceeded):
            return not self.task.acks_on_timeout
        return isinstance(exception, (WorkerLostError, SystemExit, KeyboardInterrupt))

    def _settle(self, error: Exception) -> None:
        """Settle the message of a task whose end could not be processed. Otherwise it would take a place forever."""
        log.error("The end of task %s[%s] was not processed: %r", self.name, self.id, error, exc_info=error)
        if not self.acknowledged:
            if self.task.acks_late:
                self._lose(error)
            else:
                self.acknowledge()

    def _lose(self, exception: BaseException) -> None:
        """Return the task to its queue with one more loss, or quarantine it.

        An acknowledgement would lose the task, and a plain requeue would repeat it forever.
        """
        self._is_lost = True
        task_ready(self)
        if state.should_terminate:
            return  # a cold shutdown killed it, and the heart returns it
        is_late = isinstance(exception, TimeLimitExceeded)
        code = "TimeLimitExceeded" if is_late else "WORKER_CRASHED"
        reason = "it exceeded its hard time limit" if is_late else (str(exception) or repr(exception))[:200]
        if self.is_job:  # the control plane decides whether it is tried again
            self._outcome, self._text = "FAILED", f"{code}: {reason}"
            self.acknowledge()
            return
        try:
            returned = self.settlement.give_back(self._message, self.tag, reason, suspect=True, task=self.id)
        except Exception as error:
            log.error("Task %s[%s] is lost, and not returned to its queue yet: %r", self.name, self.id, error)
            if self.is_held and self.settlement.early:
                self.settlement.early.return_later(self.tag, suspect=True)
            elif self.context.unacked is None:
                self.reject(requeue=True)
            else:
                self._outcome, self._text = "LOST", f"{code}: {reason}; not returned to its queue yet"
                self._send_end("LOST")
            self.context.record_returned(self.tag, self.attempt)  # then the audit (on Redis) returns it
            return
        self.acknowledged = True
        self.context.record_returned(self.tag, self.attempt)
        is_quarantined = returned.outcome is Outcome.QUARANTINED
        self._outcome = "QUARANTINED" if is_quarantined else "LOST"
        self._text = f"{code}: {reason}; {returned.outcome.name.lower()}"
        if is_quarantined:
            self._text = f"{code}: {quarantine_text(self.name, returned.losses, reason)}"
        self._send_end(self._outcome)
        log.warning("Task %s[%s] lost (%s): %s", self.name, self.id, reason, returned.outcome.name)
        if is_quarantined:
            text = quarantine_text(self.name, returned.losses, reason)
            try:
                store_failure(self.task, self.id, self._context, text, stores=self.store_errors)
            except Exception as error:  # on Redis another worker tries again
                log.error("The failure of task %s[%s] was not stored: %r", self.name, self.id, error)
                return
            self.context.send(FailureStored(self.id, self.id, self.name))


def _with_end(on_success: Callable[..., None]) -> Callable[..., None]:
    """Return the hook with a report of the end.

    Failures do not reach Celery's own hook, because it may end the worker.
    """

    def hook(self: Protected, outcome: Any, **kwargs: Any) -> None:
        # In a pool without processes, the exception escaped from Celery's own handling.
        if isinstance(outcome, ExceptionInfo):
            return self.on_failure(outcome)
        failed, result, _ = outcome
        if failed:
            return self.on_failure(result, return_ok=True)
        if self.context.options.show_arguments:
            self._text = str(result)[:TEXT]
        try:
            on_success(self, outcome, **kwargs)
        except Exception as error:
            log.error("The success of task %s[%s] was not processed: %r", self.name, self.id, error, exc_info=error)
            self.acknowledge()
        return self._send_end("COMPLETED")

    return hook


def _text(exc_info: Any) -> str:
    exception = raised(exc_info)
    return mask_addresses(f"{type(exception).__name__}: {exception}")[:TEXT]


def request_class(base: Any, context: WorkerContext, settlement: Settlement, jobs: OwnQueue | None) -> type:
    """Return a subclass of `base` (a class, or its name) with the protection's hooks.

    Hooks of the application still run.
    """
    base = symbol_by_name(base)
    if issubclass(base, Protected):
        return base
    attributes = {"context": context, "settlement": settlement, "jobs": jobs}
    return type("Protected" + base.__name__, (Protected, base), attributes)
