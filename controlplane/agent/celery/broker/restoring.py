"""Return messages on Redis to their queues. Each returns only once, however many processes try at the same time."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from typing import Any

from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from controlplane.agent.celery.broker import keys


class Outcome(enum.Enum):
    RESTORED = "RESTORED"
    QUARANTINED = "QUARANTINED"
    GONE = "GONE"  # another process returned it, or it was acknowledged
    HOMELESS = "HOMELESS"  # no queue is bound to its exchange and routing key, so it stays where it is


@dataclass(frozen=True)
class Loss:
    """Loss of an instance: the reason why its messages return.

    A task that is lost more than `limit` times is quarantined.
    """

    instance: str
    reason: str
    limit: int


@dataclass(frozen=True)
class Returned:
    """Result of the return of one message."""

    outcome: Outcome
    task: str = ""
    losses: int = 0


def give_back(channel: Any, tag: str, loss: Loss, *, suspect: bool, task: str | None = None) -> Returned:
    """Return one unacknowledged message of `channel` to its queue.

    If it raises one of kombu's connection errors, nothing has changed. `suspect` means that the code of the task ran.
    Then its number of losses grows by one, and the message goes to the tail of its queue or to the quarantine. Other
    messages go to the head.

    `task` is the id of the task, if the caller knows it. With protocol 1 the id is in the body, and only an application
    can read the body. Until an application has read it, a quarantined message has its tag as its key.

    The transaction is the same as in kombu's restore_by_tag. It watches the hash, so only one of many processes
    succeeds.
    """
    returned = Returned(Outcome.GONE)

    def transaction(pipe: Any) -> None:
        nonlocal returned
        data = pipe.hget(channel.unacked_key, tag)
        pipe.multi()
        if not data:
            returned = Returned(Outcome.GONE)
            channel.qos._remove_from_indices(tag, pipe)
            return
        message, exchange, routing_key = loads(bytes_to_str(data))
        headers = message.setdefault("headers", {})
        losses = int(headers.get("losses") or 0) + suspect
        id = str(task or headers.get("id") or tag)
        if losses > loss.limit:
            returned = Returned(Outcome.QUARANTINED, id, losses)
            entry = {
                "message": message, "exchange": exchange, "routing_key": routing_key, "name": headers.get("task"),
                "losses": losses, "instance": loss.instance, "reason": loss.reason, "at": time.time(),
            }  # fmt: skip
            pipe.hset(keys.QUARANTINE, id, dumps(entry))
            pipe.sadd(keys.UNREPORTED, id)
        elif not channel._lookup(exchange, routing_key):
            returned = Returned(Outcome.HOMELESS, id, losses)
            return
        else:
            if losses:
                headers["losses"] = losses
            returned = Returned(Outcome.RESTORED, id, losses)
            channel._do_restore_message(message, exchange, routing_key, pipe, leftmost=suspect)
        channel.qos._remove_from_indices(tag, pipe)

    with channel.conn_or_acquire() as client:
        client.transaction(transaction, channel.unacked_key)
    return returned


def quarantine_text(name: str, losses: int, reason: str) -> str:
    """Return the error text of a quarantined task."""
    return f"{name} ended its worker, process or time {losses} times ({reason}): quarantined"
