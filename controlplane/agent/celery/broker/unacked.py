"""Unacknowledged messages of workers in Redis: mark their worker, return them to their queues, quarantine them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import redis
import structlog
from kombu import Connection
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from controlplane.agent.celery.broker import keys
from controlplane.agent.celery.broker.access import explain
from controlplane.agent.celery.broker.restoring import Loss, Outcome, Returned, give_back

log = structlog.get_logger()
TIMEOUTS = {"socket_timeout": 5.0, "socket_connect_timeout": 2.0}  # seconds, unless the application sets others


class UnackedMessages:
    """Connection to the broker of a worker. Every method raises `errors` if Redis cannot be reached."""

    def __init__(self, connection: Connection, exchanges: dict[str, str] | None = None) -> None:
        self._connection, self._exchanges = connection, exchanges or {}
        self._options = {**TIMEOUTS, **(connection.transport_options or {})}
        self._channel: Any = None
        self.errors: tuple[type[Exception], ...] = (redis.RedisError, OSError)

    @property
    def _client(self) -> redis.Redis:
        if self._channel is None:
            self._channel = self._open(self._options)
        return redis.Redis(connection_pool=self._channel.pool)

    def _key(self, name: str) -> str:
        return f"{self._options.get('global_keyprefix') or ''}{name}"

    def close(self) -> None:
        if self._channel is not None:
            self._channel.connection.client.close()
            self._channel = None

    def check_access(self, instance: str) -> None:
        """Try every key of the protection. Raise PermissionError with a message if an access rule forbids one."""
        pipe = self._client.pipeline(transaction=False)
        for key in (keys.HOLDERS, keys.UNREPORTED):
            pipe.srem(self._key(key), "")
        for key in (keys.QUARANTINE, keys.unacked(instance)):
            pipe.hdel(self._key(key), "")
        pipe.zrem(self._key(f"unacked_index:{instance}"), "")
        for key in (f"unacked_mutex:{instance}", keys.condemned(instance), keys.own_queue(instance)):
            pipe.delete(self._key(key))
        try:
            pipe.execute()
        except redis.exceptions.NoPermissionError as error:
            raise PermissionError(explain(error)) from error

    def is_condemned(self, instance: str) -> bool:
        """Return True if this instance is marked."""
        return bool(self._client.exists(self._key(keys.condemned(instance))))

    def enter(self, instance: str) -> None:
        """Add an instance to the set of instances whose hash may hold messages."""
        self._client.sadd(self._key(keys.HOLDERS), instance)

    def leave(self, instance: str) -> bool:
        """Remove an instance that holds nothing. Return False if it still holds messages."""
        if is_empty := not self.count(instance):
            pipe = self._client.pipeline()
            pipe.srem(self._key(keys.HOLDERS), instance)
            # The index may still list messages that were acknowledged just before the end.
            pipe.delete(self._key(f"unacked_mutex:{instance}"), self._key(f"unacked_index:{instance}"))
            # This queue has the jobs that the worker claimed. The control plane runs each of them again.
            pipe.delete(*map(self._key, self._lists(keys.own_queue(instance))))
            pipe.execute()
        return is_empty

    def holders(self) -> list[str]:
        return sorted(bytes_to_str(member) for member in self._client.smembers(self._key(keys.HOLDERS)))

    def condemn(self, instance: str, by: str) -> float:
        """Mark an instance. Return the seconds since any process first marked it."""
        key = self._key(keys.condemned(instance))
        client = self._client
        client.set(key, by, nx=True, ex=keys.MARK_KEPT)
        left = client.pttl(key)
        return 0.0 if left < 0 else keys.MARK_KEPT - left / 1000

    def count(self, instance: str) -> int:
        return int(self._client.hlen(self._key(keys.unacked(instance))))

    def tags(self, instance: str) -> list[str]:
        """Return the tags of an instance's messages, newest first.

        If the messages go back to the heads of their queues in this order, the oldest is delivered first again.
        """
        client = self._client
        held = {bytes_to_str(tag) for tag in client.hkeys(self._key(keys.unacked(instance)))}
        newest_first: Any = client.zrevrange(self._key(f"unacked_index:{instance}"), 0, -1)
        index = [bytes_to_str(tag) for tag in newest_first]
        return [tag for tag in index if tag in held] + sorted(held - set(index))

    def give_back_all(
        self,
        instance: str,
        loss: Loss,
        running: Collection[str] | None,
        returned: Callable[[str, Returned], None] = lambda tag, what: None,
        *,
        keep: Collection[str] = (),
        settled: Collection[str] = (),
    ) -> Counter[Outcome]:
        """Return the messages of an instance to their queues, except tags in `keep`. Acknowledge the tags in `settled`.

        `running` are the tags of tasks whose code ran. None means that the code of any task may have run. `returned` is
        called for each message.
        """
        outcomes: Counter[Outcome] = Counter()
        tags = [tag for tag in self.tags(instance) if tag not in keep]
        if not tags:
            return outcomes
        with self._opened(instance) as channel:
            for tag in tags:
                if tag in settled:
                    channel.qos.ack(tag)
                    continue
                what = give_back(channel, tag, loss, suspect=running is None or tag in running)
                outcomes[what.outcome] += 1
                if what.outcome is Outcome.HOMELESS:
                    log.error("Message not returned, because no queue is bound to its exchange and key", task=what.task)
                returned(tag, what)
        return outcomes

    def give_back_one(self, instance: str, tag: str, loss: Loss, *, suspect: bool, task: str | None = None) -> Returned:
        with self._opened(instance) as channel:
            return give_back(channel, tag, loss, suspect=suspect, task=task)

    def acknowledge(self, instance: str, tag: str) -> None:
        pipe = self._client.pipeline()
        pipe.zrem(self._key(f"unacked_index:{instance}"), tag)
        pipe.hdel(self._key(keys.unacked(instance)), tag)
        pipe.execute()

    def lengths(self, queues: Collection[str]) -> int:
        """Return the number of messages in these queues, of all priorities."""
        pipe = self._client.pipeline()
        for queue in queues:
            for name in self._lists(queue):
                pipe.llen(self._key(name))
        return sum(pipe.execute())

    def _lists(self, queue: str) -> list[str]:
        """Return the keys of a queue: one list for each priority."""
        separator = self._options.get("sep") or "\x06\x16"
        return [
            f"{queue}{separator}{step}" if step else queue
            for step in self._options.get("priority_steps") or [0, 3, 6, 9]
        ]

    def sweep_shared(self, visibility_timeout: float) -> None:
        """Return old messages of unprotected workers to their queues, as these workers do.

        `visibility_timeout` is in seconds.
        """
        with self._opened(None, visibility_timeout=visibility_timeout) as channel:
            channel.qos.restore_visible(num=channel.unacked_restore_limit)

    def unreported(self) -> list[str]:
        """Return the quarantined tasks whose failure is not stored yet."""
        return sorted(bytes_to_str(member) for member in self._client.smembers(self._key(keys.UNREPORTED)))

    def take_unreported(self, task: str, by: str) -> dict[str, Any] | None:
        """Lock a quarantined task for a minute, so that only this worker stores its failure.

        Return None if another has it.
        """
        client = self._client
        if not client.set(self._key(keys.reporting(task)), by, nx=True, ex=60):
            return None
        data = client.hget(self._key(keys.QUARANTINE), task)
        if data is None:
            client.srem(self._key(keys.UNREPORTED), task)
            return None
        entry: dict[str, Any] = loads(bytes_to_str(data))
        return entry

    def quarantined(self) -> dict[str, dict[str, Any]]:
        """Return the entries of the quarantine by task id.

        Fields: name, losses, instance, reason, at (Unix time), message.
        """
        entries: Any = self._client.hgetall(self._key(keys.QUARANTINE))
        return {bytes_to_str(task): loads(bytes_to_str(data)) for task, data in entries.items()}

    def send_again(self, task: str) -> bool:
        """Send a quarantined task to the tail of its queue, with a loss count of zero.

        Return False if it is not there.
        """
        with self._opened(None) as channel, channel.conn_or_acquire() as client:
            return client.transaction(
                lambda pipe: _sent_again(channel, pipe, task), keys.QUARANTINE, value_from_callable=True
            )

    def record_stored(self, key: str, task: str, name: str) -> None:
        """Record that the failure of a quarantined message is stored.

        From now on the key of the entry is the task's id. The id is known, because a worker has read the message.
        """
        with self._opened(None) as channel, channel.conn_or_acquire() as client:
            client.transaction(lambda pipe: _record_stored(pipe, key, task, name), keys.QUARANTINE)

    @contextmanager
    def _opened(self, instance: str | None, **options: Any) -> Iterator[Any]:
        """Yield a channel with the keys of an instance, or with the shared keys."""
        own = keys.transport_options(instance) if instance else {}
        base = {key: value for key, value in self._options.items() if key not in keys.transport_options("")}
        channel = self._open({**base, **own, **options})
        try:
            yield channel
        finally:
            channel.connection.client.close()

    def _open(self, options: dict[str, Any]) -> Any:
        connection = self._connection.clone(transport_options=options)
        channel: Any = connection.channel()
        for exchange, kind in self._exchanges.items():
            channel.state.exchanges.setdefault(exchange, {"type": kind})
        return channel


def _record_stored(pipe: Any, key: str, task: str, name: str) -> None:
    data = pipe.hget(keys.QUARANTINE, key)
    pipe.multi()
    if data and key != task:
        pipe.hset(keys.QUARANTINE, task, dumps({**loads(bytes_to_str(data)), "name": name}))
        pipe.hdel(keys.QUARANTINE, key)
    pipe.srem(keys.UNREPORTED, key)


def _sent_again(channel: Any, pipe: Any, task: str) -> bool:
    data = pipe.hget(keys.QUARANTINE, task)
    pipe.multi()
    if data:
        entry = loads(bytes_to_str(data))
        entry["message"].setdefault("headers", {}).pop("losses", None)
        channel._do_restore_message(entry["message"], entry["exchange"], entry["routing_key"], pipe, leftmost=True)
        pipe.hdel(keys.QUARANTINE, task)
        pipe.srem(keys.UNREPORTED, task)
    return bool(data)
