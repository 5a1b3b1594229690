"""Carry out orders of the heart in the worker's main process."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger
from celery.worker import state as celery_state

from controlplane.agent.celery import messages
from controlplane.agent.celery.messages import FailureStored, Order
from controlplane.agent.celery.worker.context import WorkerContext
from controlplane.agent.celery.worker.early_acknowledgement import EarlyAcknowledgement
from controlplane.agent.celery.worker.failures import store_failure_of
from controlplane.agent.celery.worker.held_queues import HeldQueues
from controlplane.agent.celery.worker.own_queue import OwnQueue

log = get_logger(__name__)
state: Any = celery_state


class Orders:
    """The orders for one worker."""

    def __init__(self, context: WorkerContext, early: EarlyAcknowledgement | None, jobs: OwnQueue | None) -> None:
        self._context, self._early, self._jobs = context, early, jobs
        self.held_queues = HeldQueues()

    def obey(self, order: Order, consumer: Any) -> None:
        """Carry out one order. Errors of the worker, the broker and the result backend are raised."""
        jobs = self._jobs
        match order:
            case messages.Consume(is_on):
                self._consume(consumer, is_on)
            case messages.HoldQueues(names):
                self.held_queues.change(consumer, names)
                if self._may_consume():
                    consumer.task_consumer.consume()
            case messages.ShutDown():
                log.warning("The control plane disconnected this worker: warm shutdown")
                state.should_stop = 0
            case messages.Revoke(task, signal):
                self._revoke(task, consumer, signal)
            case messages.SendJob() if jobs:
                jobs.send(order)
            case messages.BeginJob(attempt) if jobs:
                jobs.begin(attempt)
            case messages.ForgetJob(attempt) if jobs:
                jobs.forget(attempt)
            case messages.ForgetEnds(attempts):
                self._context.ends.forget(attempts)
            case messages.StoreFailure(key):
                self._context.send(FailureStored(key, *store_failure_of(self._context.app, order)))

    def _revoke(self, task: str, consumer: Any, signal: str) -> None:
        """Keep a task from starting, and end it if it runs. Only the prefork pool can end a running task."""
        state.revoked.add(task)
        if self._jobs:
            self._jobs.begin(task)  # Celery drops it, because it is revoked
        if request := state.requests.get(task):
            log.warning("Task %s was cancelled", task)
            try:
                request.terminate(consumer.pool, signal=signal)
            except NotImplementedError:
                log.warning("Task %s continues, because this pool cannot end a running task", task)

    def _consume(self, consumer: Any, is_on: bool) -> None:
        """Begin or stop consuming. Tasks that the worker has already received continue."""
        if is_on == self._context.consumes:
            return
        self._context.consumes = is_on
        log.warning("Uncordoned" if is_on else "Cordoned: this worker receives no more messages")
        if not is_on:
            consumer.task_consumer.cancel()
        elif self._may_consume():
            consumer.task_consumer.consume()

    def _may_consume(self) -> bool:
        """Return False if the worker is cordoned, or consumes again when a place is free."""
        return self._context.consumes and not (self._early and self._early.prefetch.is_paused)
