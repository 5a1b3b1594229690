"""Giving a message back to its queue, once, whoever tries at the same time."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from typing import Any

from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from controlplane.agent.celery import keys


class Outcome(enum.Enum):
    RESTORED = "RESTORED"
    QUARANTINED = "QUARANTINED"
    GONE = "GONE"  # somebody else was first, or it was acknowledged
    HOMELESS = "HOMELESS"  # no queue is bound to where it came from: it stays where it is


@dataclass(frozen=True)
class Loss:
    """Why messages are given back. `limit`: how often one may be lost while its code ran."""

    instance: str
    reason: str
    limit: int


@dataclass(frozen=True)
class Returned:
    outcome: Outcome
    task: str = ""
    losses: int = 0


def give_back(channel: Any, tag: str, loss: Loss, *, suspect: bool) -> Returned:
    """One message of `channel`'s unacknowledged ones; raises kombu's connection errors, and has then done nothing.

    As kombu's own restore_by_tag: the hash is watched, so of any number who try one succeeds. A suspect (its code ran)
    has its `losses` raised and goes to the tail, or to the quarantine; a bystander goes to the head.
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
        task = str(headers.get("id") or tag)
        if losses > loss.limit:
            returned = Returned(Outcome.QUARANTINED, task, losses)
            entry = {
                "message": message, "exchange": exchange, "routing_key": routing_key, "name": headers.get("task"),
                "losses": losses, "instance": loss.instance, "reason": loss.reason, "at": time.time(),
            }  # fmt: skip
            pipe.hset(keys.QUARANTINE, task, dumps(entry))
            pipe.sadd(keys.UNREPORTED, task)
        elif not channel._lookup(exchange, routing_key):
            returned = Returned(Outcome.HOMELESS, task, losses)
            return
        else:
            if losses:
                headers["losses"] = losses
            returned = Returned(Outcome.RESTORED, task, losses)
            channel._do_restore_message(message, exchange, routing_key, pipe, leftmost=suspect)
        channel.qos._remove_from_indices(tag, pipe)

    with channel.conn_or_acquire() as client:
        client.transaction(transaction, channel.unacked_key)
    return returned


def quarantine_text(name: str, losses: int, reason: str) -> str:
    """The message of the FAILURE."""
    return f"{name} was running when its worker was lost, {losses} times ({reason}): quarantined"
