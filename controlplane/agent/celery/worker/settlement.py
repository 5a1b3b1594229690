"""Settle messages without Celery: return them to their queues, quarantine them, or acknowledge them later."""

from __future__ import annotations

from typing import Any

from celery.utils.log import get_logger
from kombu.transport.virtual import QoS

from controlplane.agent.celery.broker import rabbitmq
from controlplane.agent.celery.broker.restoring import Loss, Returned
from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.worker.context import WorkerContext
from controlplane.agent.celery.worker.early_acknowledgement import EarlyAcknowledgement
from controlplane.agent.fence import read_uptime

log = get_logger(__name__)
AUDIT_EVERY = 10.0  # seconds


class Settlement:
    """The messages of one worker."""

    def __init__(self, context: WorkerContext, early: EarlyAcknowledgement | None) -> None:
        self._context, self.early = context, early
        self._unsettled: list[str] = []
        self._orphans: set[str] = set()
        self._audit_at = read_uptime() + AUDIT_EVERY

    def give_back(self, message: Any, tag: str, reason: str, *, suspect: bool, task: str | None = None) -> Returned:
        """Return a message to its queue, or quarantine it under its `task` id.

        For the channel that received it, the message is then settled. `suspect` means that the code of the task ran.
        """
        context = self._context
        loss = Loss(context.instance, reason, context.options.max_resubmissions)
        if context.unacked:
            returned = context.unacked.give_back_one(context.instance, tag, loss, suspect=suspect, task=task)
            QoS.ack(message.channel.qos, tag)
        elif self.early:
            returned = self.early.give_back(message, tag, loss, suspect=suspect, task=task)
        else:
            returned = rabbitmq.give_back(context.app, message, loss, task, suspect=suspect)
            message.ack()
        return returned

    def set_aside(self, tag: str, reason: str) -> None:
        """Quarantine a message on Redis for which no request can be made."""
        context = self._context
        if context.unacked:
            context.unacked.give_back_one(context.instance, tag, Loss(context.instance, reason, limit=0), suspect=True)

    def acknowledge_later(self, tag: str) -> None:
        """Acknowledge a message at the next audit, because the connection that received the message is lost."""
        self._unsettled.append(tag)

    def audit(self, unacked: UnackedMessages, *, is_moving: bool) -> None:
        """Return messages to their queues that Redis records for this worker, but that the worker does not know.

        A message is returned if two audits in a row find it, because the main loop may not have read it at the first
        audit. `is_moving` means that Redis may have moved a message that this process has not read. Then there is no
        audit.
        """
        context = self._context
        while self._unsettled:
            unacked.acknowledge(context.instance, self._unsettled[-1])
            self._unsettled.pop()
        if read_uptime() < self._audit_at or is_moving:
            return
        self._audit_at = read_uptime() + AUDIT_EVERY
        held = set(unacked.tags(context.instance))
        orphans = held - context.open.keys()
        if confirmed := orphans & self._orphans:
            loss = Loss(context.instance, "its worker did not know it", context.options.max_resubmissions)
            done = confirmed & set(context.done)
            outcomes = unacked.give_back_all(context.instance, loss, (), keep=held - confirmed, settled=done)
            counts = {outcome.name: count for outcome, count in outcomes.items()}
            log.warning("Messages returned that this worker did not know: %s", counts)
        self._orphans = orphans - confirmed
