"""What instances hold in Redis: looked at, marked, given back. Needs kombu, and nothing of Celery's or the user's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import redis
import structlog
from kombu import Connection
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

from controlplane.agent.celery import keys
from controlplane.agent.celery.restoring import Loss, Outcome, Returned, give_back

log = structlog.get_logger()
PATIENCE = {"socket_timeout": 5.0, "socket_connect_timeout": 2.0}  # unless the application says otherwise


class Holdings:
    """One connection to the broker of a worker. Every method raises `errors` when Redis cannot be asked."""

    def __init__(self, connection: Connection, exchanges: dict[str, str] | None = None) -> None:
        self._connection, self._exchanges = connection, exchanges or {}
        self._options = {**PATIENCE, **(connection.transport_options or {})}
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

    def is_condemned(self, instance: str) -> bool:
        return bool(self._client.exists(self._key(keys.condemned(instance))))

    def enter(self, instance: str) -> None:
        """Its hash may hold something from now on."""
        self._client.sadd(self._key(keys.HOLDERS), instance)

    def leave(self, instance: str) -> None:
        """Only where nothing is left."""
        if not self.count(instance):
            pipe = self._client.pipeline()
            pipe.srem(self._key(keys.HOLDERS), instance)
            pipe.delete(self._key(f"unacked_mutex:{instance}"))
            # Jobs that it claimed: the control plane has another try made of each.
            pipe.delete(*map(self._key, self._lists(keys.own_queue(instance))))
            pipe.execute()

    def holders(self) -> list[str]:
        return sorted(bytes_to_str(member) for member in self._client.smembers(self._key(keys.HOLDERS)))

    def condemn(self, instance: str, by: str) -> float:
        """Mark it; seconds since it was marked first, by whomever."""
        key = self._key(keys.condemned(instance))
        client = self._client
        client.set(key, by, nx=True, ex=keys.MARK_KEPT)
        left = client.pttl(key)
        return 0.0 if left < 0 else keys.MARK_KEPT - left / 1000

    def count(self, instance: str) -> int:
        return int(self._client.hlen(self._key(keys.unacked(instance))))

    def tags(self, instance: str) -> list[str]:
        """Of what it has not acknowledged, the newest first, so that each may go to the head in turn."""
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
        """Everything that `instance` holds. `running`: the tags whose code ran; None: any may have. What is in `keep`
        stays, what is in `settled` is acknowledged."""
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
                    log.error("No queue is bound to where a message came from: not given back", task=what.task)
                returned(tag, what)
        return outcomes

    def give_back_one(self, instance: str, tag: str, loss: Loss, *, suspect: bool) -> Returned:
        with self._opened(instance) as channel:
            return give_back(channel, tag, loss, suspect=suspect)

    def acknowledge(self, instance: str, tag: str) -> None:
        pipe = self._client.pipeline()
        pipe.zrem(self._key(f"unacked_index:{instance}"), tag)
        pipe.hdel(self._key(keys.unacked(instance)), tag)
        pipe.execute()

    def lengths(self, queues: Collection[str]) -> int:
        """Messages that wait in these queues, of all priorities."""
        pipe = self._client.pipeline()
        for queue in queues:
            for name in self._lists(queue):
                pipe.llen(self._key(name))
        return sum(pipe.execute())

    def _lists(self, queue: str) -> list[str]:
        """A queue is a list for each priority."""
        separator = self._options.get("sep") or "\x06\x16"
        return [
            f"{queue}{separator}{step}" if step else queue
            for step in self._options.get("priority_steps") or [0, 3, 6, 9]
        ]

    def sweep_shared(self, visibility_timeout: float) -> None:
        """What unprotected workers left under the shared keys goes back by age, as they do it themselves."""
        with self._opened(None, visibility_timeout=visibility_timeout) as channel:
            channel.qos.restore_visible(num=channel.unacked_restore_limit)

    def unreported(self) -> list[str]:
        return sorted(bytes_to_str(member) for member in self._client.smembers(self._key(keys.UNREPORTED)))

    def take_unreported(self, task: str, by: str) -> dict[str, Any] | None:
        """The quarantined task, for this worker alone to report within a minute."""
        client = self._client
        if not client.set(self._key(keys.reporting(task)), by, nx=True, ex=60):
            return None
        data = client.hget(self._key(keys.QUARANTINE), task)
        if data is None:
            self.reported(task)
            return None
        entry: dict[str, Any] = loads(bytes_to_str(data))
        return entry

    def quarantined(self) -> dict[str, dict[str, Any]]:
        """By task id: name, losses, instance, reason, at, message."""
        entries: Any = self._client.hgetall(self._key(keys.QUARANTINE))
        return {bytes_to_str(task): loads(bytes_to_str(data)) for task, data in entries.items()}

    def send_again(self, task: str) -> bool:
        """To the tail of its queue, as if it had never been lost; False when it is not in quarantine."""
        with self._opened(None) as channel, channel.conn_or_acquire() as client:
            return client.transaction(
                lambda pipe: _sent_again(channel, pipe, task), keys.QUARANTINE, value_from_callable=True
            )

    def reported(self, task: str) -> None:
        self._client.srem(self._key(keys.UNREPORTED), task)

    @contextmanager
    def _opened(self, instance: str | None, **options: Any) -> Iterator[Any]:
        """A channel with the keys of that instance, or with the shared ones."""
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


def _sent_again(channel: Any, pipe: Any, task: str) -> bool:
    data = pipe.hget(keys.QUARANTINE, task)
    pipe.multi()
    if data:
        entry = loads(bytes_to_str(data))
        entry["message"]["headers"].pop("losses", None)
        channel._do_restore_message(entry["message"], entry["exchange"], entry["routing_key"], pipe, leftmost=True)
        pipe.hdel(keys.QUARANTINE, task)
        pipe.srem(keys.UNREPORTED, task)
    return bool(data)
