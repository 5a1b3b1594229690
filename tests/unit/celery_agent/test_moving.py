"""The move of messages to a protected worker in one step, on a real Redis."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress

import pytest
from kombu import Connection, Consumer, Exchange, Queue
from kombu.utils.json import dumps

from controlplane.agent.celery.broker import keys
from controlplane.agent.celery.broker.move_script import SCRIPT
from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.worker import moving
from controlplane.agent.celery.worker.moving import MessageMover, MoveRefused
from controlplane.agent.celery.worker.turns import MOST_SPREAD, YIELD, Turns

TEXTS = {
    "plain": {"id": "a", "task": "work"},
    "empty": {"lists": [], "maps": {}, "nothing": None},
    "numbers": {"large": 2**80, "small": 0.1, "negative": -(2**63)},
    "letters": {"text": "Grüße, 世界 🎈 \\ud800 / \\ \" '"},
    "half a pair": {"text": "\ud83d", "escaped": "\\ud83d"},
}


class Worker:
    """Consumes like a protected worker: the same channel, the same mover, no pool."""

    def __init__(self, url: str, *queues: str, instance: str = "w", greets: bool = False, **options: object) -> None:
        self.connection = Connection(url, transport_options={**keys.transport_options(instance), **options})
        self.channel = self.connection.default_channel
        self.channel.do_restore = False
        self.messages: list[object] = []
        self.aside: list[str] = []
        self.consumer = Consumer(
            self.channel, [Queue(name, Exchange("")) for name in queues or ["orders"]], on_message=self.messages.append
        )
        if greets:
            self.greet()
        self.mover = MessageMover(self.channel, lambda tag, reason: self.aside.append(tag), lambda: True)
        self.mover.attach()
        self.consumer.consume()

    def greet(self) -> None:
        """Wait for answers on the same channel, as Celery does when a worker starts."""
        with Consumer(self.channel, [Queue("answers", Exchange(""))]), suppress(TimeoutError):
            self.connection.drain_events(timeout=0.2)

    def run(self, count: int = 1, within: float = 60.0) -> list[str]:
        """Return the ids of up to `count` messages."""
        began, until = len(self.messages), time.monotonic() + within
        while len(self.messages) - began < count and time.monotonic() < until:
            with suppress(TimeoutError):
                self.connection.drain_events(timeout=min(within, 0.1))
        return [str(message.headers.get("id")) for message in self.messages[began:]]

    def settle(self) -> None:
        """Wait until the worker has found its queues empty."""
        assert self.run(within=0.3) == []
        until = time.monotonic() + 60
        while not self.mover.is_allowed and time.monotonic() < until:  # Redis may answer late
            assert self.run(within=0.1) == []


@pytest.fixture
def broker(redis, redis_server):
    return redis_server.url


@pytest.fixture
def worker(broker):
    workers = []

    def start(*queues, url=broker, **options):
        workers.append(Worker(url, *queues, **options))
        return workers[-1]

    yield start
    for one in workers:
        one.connection.close()


@pytest.fixture
def only_when_woken(monkeypatch):
    """Let no waiting worker find a message by its rare looks, however long a test waits."""
    monkeypatch.setattr(moving, "LOOK_EVERY", 3600.0)


def publish(url, *names, queue="orders", headers=None, priority=0, **options):
    with Connection(url, transport_options=options) as connection:
        for name in names:
            connection.Producer().publish(
                {"n": name}, exchange="", routing_key=queue, headers={"id": name, **(headers or {})}, priority=priority
            )


@pytest.mark.parametrize("headers", TEXTS.values(), ids=TEXTS)
def test_a_moved_message_is_recorded_as_kombu_records_it(broker, redis, worker, headers):
    publish(broker, "a", headers=headers)
    [raw] = redis.lrange("orders", 0, -1)
    one = worker()
    one.run()
    [message] = one.messages
    assert message.headers == {"id": "a", **headers}
    assert redis.llen("orders") == 0
    [(tag, record)] = redis.hgetall("unacked:w").items()
    assert tag.decode() == message.delivery_tag
    assert json.loads(record) == json.loads(dumps([json.loads(raw), "", "orders"]))
    assert redis.zrange("unacked_index:w", 0, -1) == [tag]
    message.ack()
    one.mover.tick()
    assert not redis.exists("unacked:w") and not redis.exists("unacked_index:w")


def test_a_text_body_with_quotes_is_moved_unchanged(broker, redis, worker):
    name = '", "properties": {"delivery_tag": "other"}} \\'
    publish(broker, name, body_encoding="utf-8")
    [raw] = redis.lrange("orders", 0, -1)
    assert b'\\"n\\"' in raw, "the body is not in base64"
    one = worker()
    one.run()
    [message] = one.messages
    assert message.payload == {"n": name}
    assert json.loads(redis.hget("unacked:w", message.delivery_tag))[0] == json.loads(raw)


def test_a_worker_that_has_greeted_the_others_on_its_channel_receives_messages(broker, redis, worker):
    one = worker(greets=True)
    assert one.channel._in_poll is None, "no BRPOP is left that could take a message"
    one.settle()
    publish(broker, "a")
    assert one.run() == ["a"]
    assert redis.hlen("unacked:w") == 1


@pytest.fixture
def before_redis_7(monkeypatch):
    """Make the script use the commands of an older Redis, which cannot pop from several lists at once."""
    script = SCRIPT.replace("redis.REDIS_VERSION_NUM", "nil")
    monkeypatch.setattr(moving, "SCRIPT", script)
    monkeypatch.setattr(moving, "DIGEST", hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest())


def test_before_redis_7_messages_are_moved_in_the_same_order(broker, redis, worker, before_redis_7):
    one = worker("letters", "orders")
    one.settle()
    publish(broker, "late", priority=9)
    publish(broker, "a", "b")
    publish(broker, "c", queue="letters")
    assert one.run(4) in (["a", "c", "b", "late"], ["c", "a", "b", "late"])
    assert redis.hlen("unacked:w") == 4
    assert redis.info("commandstats").get("cmdstat_rpop", {}).get("calls", 0) > 0


def test_numeric_tags_are_recorded_as_kombu_writes_them(broker, redis, worker):
    publish(broker, "a")
    message = json.loads(redis.rpop("orders"))
    message["properties"]["delivery_tag"] = 2**40
    redis.rpush("orders", json.dumps(message))
    one = worker()
    assert one.run() == ["a"]
    assert redis.hkeys("unacked:w") == [str(2**40).encode()]
    one.messages[0].ack()
    assert not redis.exists("unacked:w")


def test_the_index_of_acknowledged_messages_is_removed_with_its_worker(broker, redis, worker):
    publish(broker, "a")
    one = worker()
    one.run()
    one.messages[0].ack()
    assert redis.zcard("unacked_index:w") == 1
    unacked = UnackedMessages(Connection(broker))
    unacked.enter("w")
    unacked.leave("w")
    unacked.close()
    assert redis.keys("unacked*") == [] and redis.smembers(keys.HOLDERS) == set()


def test_a_worker_that_is_usually_first_does_not_wait_and_others_spread():
    turns = Turns()
    assert turns.pause(is_busy=False) == 0.0
    assert turns.pause(is_busy=True) == YIELD
    for _ in range(100):
        turns.lost()
    pauses = [turns.pause(is_busy=False) for _ in range(100)]
    assert 0.05 < max(pauses) <= MOST_SPREAD and min(pauses) < 0.05
    for _ in range(100):
        turns.won()
    assert turns.pause(is_busy=False) == 0.0


def test_a_waiting_worker_that_is_frozen_takes_no_message(broker, redis, worker):
    one = worker()
    one.settle()
    publish(broker, "a")
    assert (redis.llen("orders"), redis.hlen("unacked:w")) == (1, 0)
    assert one.run() == ["a"]
    assert (redis.llen("orders"), redis.hlen("unacked:w")) == (0, 1)


def test_a_moved_message_whose_reply_is_lost_is_in_the_hash_of_its_worker(broker, redis, worker):
    one = worker()
    publish(broker, "a")
    one.connection.transport.cycle.on_poll_start()  # asks, and reads no answer
    assert one.mover.expects()
    redis.ping()
    redis.client_kill_filter(_type="normal", skipme=True)
    assert (redis.llen("orders"), redis.hlen("unacked:w")) == (0, 1)


def test_priorities_are_kept_and_queues_take_turns(broker, worker):
    for queue in ("orders", "letters"):
        publish(broker, *(f"{queue} {n}" for n in range(3)), queue=queue)
        publish(broker, f"{queue} late", queue=queue, priority=9)
    one = worker("orders", "letters")
    names = one.run(8)
    assert [name.split()[0] for name in names[:6]] in (["orders", "letters"] * 3, ["letters", "orders"] * 3)
    assert sorted(names[6:]) == ["letters late", "orders late"], "the lowest number goes first, as kombu has it"


def test_a_message_of_any_priority_wakes_a_waiting_worker(broker, worker, only_when_woken):
    one = worker("letters", "orders")
    one.settle()
    for priority in (0, 3, 6, 9):
        publish(broker, str(priority), priority=priority)
        assert one.run() == [str(priority)]


def test_keys_have_the_prefix_of_the_application(broker, redis, worker):
    one = worker(global_keyprefix="{app}:")
    one.settle()
    publish(broker, "a", global_keyprefix="{app}:")
    assert one.run() == ["a"]
    assert redis.keys("unacked*") == [] and redis.hlen("{app}:unacked:w") == 1
    one.messages[0].ack()
    assert redis.hlen("{app}:unacked:w") == 0


def test_a_message_that_cannot_be_recorded_stays_in_its_queue(broker, redis, worker):
    publish(broker, "a", "b")
    redis.set("unacked:w", "of another type")
    one = worker()
    with pytest.raises(MoveRefused, match="WRONGTYPE"):
        one.run()
    assert [json.loads(item)["headers"]["id"] for item in redis.lrange("orders", 0, -1)] == ["b", "a"]


@pytest.fixture
def as_user(redis, redis_server):
    """Return a function that makes a user with access rules and returns its address."""

    def user(*rules):
        redis.acl_setuser("app", enabled=True, reset=True, passwords=["+secret"], keys=["*"], channels=["*"])
        redis.execute_command("ACL", "SETUSER", "app", *rules)
        return redis_server.url.replace("redis://", "redis://app:secret@")

    yield user
    redis.acl_deluser("app")


@pytest.mark.parametrize("command", ["eval", "lmpop", "hset", "exists"])
def test_a_worker_without_a_right_ends_with_the_reason_and_loses_nothing(broker, redis, worker, as_user, command):
    publish(broker, "a")
    one = worker(url=as_user("+@all", f"-{command}"))
    with pytest.raises(MoveRefused, match="An access rule of Redis refuses"):
        one.run()
    assert redis.llen("orders") + redis.hlen("unacked:w") == 1


def test_a_right_that_is_missing_for_some_time_ends_no_worker(broker, redis, worker, as_user, monkeypatch, caplog):
    monkeypatch.setattr(moving, "LOOK_EVERY", 0.3)
    one = worker(url=as_user("+@all"))
    one.settle()
    redis.execute_command("ACL", "SETUSER", "app", "-hset")
    publish(broker, "a")
    until = time.monotonic() + 60
    while not caplog.records and time.monotonic() < until:
        assert one.run(within=0.1) == []
    assert one.run(within=1) == [], "it tries again and again"
    assert redis.llen("orders") == 1
    [record] = caplog.records
    assert "An access rule of Redis refuses" in record.message
    redis.execute_command("ACL", "SETUSER", "app", "+hset")
    assert one.run() == ["a"]


def test_without_client_tracking_a_worker_polls_redis(broker, worker, as_user, only_when_woken):
    one = worker(url=as_user("+@all", "-client|tracking"))
    one.settle()
    publish(broker, "a")
    assert one.run() == ["a"]


def test_the_script_is_sent_again_after_redis_lost_it(broker, redis, worker):
    one = worker()
    publish(broker, "a")
    assert one.run() == ["a"]
    redis.script_flush()
    publish(broker, "b")
    assert one.run() == ["b"]


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"properties": {}}'])
def test_an_entry_that_is_no_message_does_not_block_the_next_message(broker, redis, worker, text):
    redis.lpush("orders", text)
    publish(broker, "a")
    one = worker()
    assert one.run() == ["a"]
    assert redis.llen("orders") == 0


def test_a_message_with_a_broken_body_is_set_aside(broker, redis, worker):
    publish(broker, "broken", "a")
    broken = json.loads(redis.rpop("orders")) | {"body": "odd"}
    redis.rpush("orders", json.dumps(broken))
    one = worker()
    assert one.run() == ["a"]
    assert one.aside == [broken["properties"]["delivery_tag"]]
    assert redis.hexists("unacked:w", one.aside[0])


def test_a_waiting_worker_connects_again_after_a_lost_connection(broker, redis, worker):
    one = worker()
    one.settle()
    redis.client_kill_filter(_type="normal", skipme=True)
    publish(broker, "a")
    until = time.monotonic() + 60
    while not one.messages and time.monotonic() < until:
        with suppress(*one.connection.connection_errors):
            one.run(within=0.1)
    assert [message.headers["id"] for message in one.messages] == ["a"]


def test_the_prefetch_count_is_respected(broker, redis, worker):
    publish(broker, "a", "b", "c")
    one = worker()
    one.channel.basic_qos(prefetch_count=2)
    assert one.run(2) == ["a", "b"]
    assert one.run(within=0.5) == []
    assert redis.llen("orders") == 1
    one.messages[0].ack()
    assert one.run() == ["c"]


def test_several_idle_workers_run_each_message_once(broker, redis, worker):
    workers = [worker(instance=f"w{n}") for n in range(3)]
    for one in workers:
        one.settle()
    names = [str(n) for n in range(30)]
    for name in names:
        publish(broker, name)
        for one in workers:
            one.run(within=0.01)
    until = time.monotonic() + 60
    while sum(len(one.messages) for one in workers) < len(names) and time.monotonic() < until:
        for one in workers:
            one.run(within=0.01)
    for one in workers:
        assert one.run(within=0.2) == [], "there are no more"
    assert sorted(message.headers["id"] for one in workers for message in one.messages) == sorted(names)


def test_a_queue_that_is_added_later_is_consumed_at_once(broker, worker, only_when_woken):
    one = worker()
    one.settle()
    publish(broker, "a", queue="letters")
    one.consumer.add_queue(Queue("letters", Exchange("")))
    one.consumer.consume()
    assert one.run() == ["a"]


def test_a_broadcast_reaches_every_worker(broker, worker):
    everybody = Exchange("everybody", type="fanout")
    workers = [worker(instance=f"w{n}") for n in range(2)]
    for n, one in enumerate(workers):
        one.consumer.add_queue(Queue(f"of-{n}", everybody))
        one.consumer.consume()
        one.settle()
    with Connection(broker) as connection:
        connection.Producer().publish({}, exchange=everybody, declare=[everybody], headers={"id": "all"})
    for one in workers:
        assert one.run() == ["all"]
        one.messages[-1].ack()
