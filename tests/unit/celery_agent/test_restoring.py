"""The return of a lost worker's messages to their queues, once, on a real Redis."""

from __future__ import annotations

import json
import threading
import warnings

import pytest
from kombu import Connection, Exchange, Queue

from controlplane.agent.celery.broker import keys
from controlplane.agent.celery.broker.restoring import Loss, Outcome
from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.quarantine import main

LOSS = Loss("dead", "killed", limit=3)


class Broker:
    """Publishes messages, and takes them like a worker that never acknowledges."""

    def __init__(self, url: str, **options: object) -> None:
        self.url, self.options = url, options
        self.open: list[Connection] = []

    def connect(self, **options: object) -> Connection:
        self.open.append(Connection(self.url, transport_options={**self.options, **options}))
        return self.open[-1]

    def publish(self, *names: str, queue: str | Queue = "orders", **options: object) -> None:
        queue = Queue(queue, Exchange("")) if isinstance(queue, str) else queue
        producer = self.connect().Producer()
        for name in names:
            target = {"exchange": queue.exchange, "declare": [queue]} if queue.exchange.name else {"exchange": ""}
            headers = {"id": name, "task": "work"}
            producer.publish({}, routing_key=queue.routing_key or queue.name, headers=headers, **target, **options)

    def take(self, instance: str, count: int, queue: str | Queue = "orders") -> list[str]:
        channel = self.connect(**keys.transport_options(instance)).channel()
        channel.do_restore = False
        name = queue if isinstance(queue, str) else queue.name
        if not isinstance(queue, str):
            queue(channel).declare()
        taken = [channel.basic_get(name) for _ in range(count)]
        return [str(message.headers["id"]) for message in taken if message]

    def losses(self, queue: str = "orders") -> dict[str, int]:
        """Return the losses of the messages in a queue by id, the next message first."""
        items = [json.loads(item) for item in reversed(self.connect().channel().client.lrange(queue, 0, -1))]
        return {item["headers"]["id"]: item["headers"].get("losses", 0) for item in items}


@pytest.fixture
def broker(redis, redis_server):
    broker = Broker(redis_server.url)
    yield broker
    for connection in broker.open:
        connection.close()


@pytest.fixture
def unacked(broker):
    unacked = UnackedMessages(Connection(broker.url))
    yield unacked
    unacked.close()


def tag_of(redis, name, instance="dead"):
    items = redis.hgetall(keys.unacked(instance)).items()
    return next(tag.decode() for tag, data in items if json.loads(data)[0]["headers"]["id"] == name)


def test_suspects_return_to_the_tail_with_a_loss_and_others_to_the_head(broker, unacked, redis):
    broker.publish("a", "b", "c", "waiting")
    assert broker.take("dead", 3) == ["a", "b", "c"]
    outcomes = unacked.give_back_all("dead", LOSS, {tag_of(redis, "a")})
    assert outcomes == {Outcome.RESTORED: 3}
    assert list(broker.losses().items()) == [("b", 0), ("c", 0), ("waiting", 0), ("a", 1)]
    assert unacked.count("dead") == 0 and not redis.exists("unacked_index:dead")


def test_all_messages_are_suspects_if_the_running_tasks_are_unknown(broker, unacked):
    broker.publish("a", "b")
    broker.take("dead", 2)
    unacked.give_back_all("dead", LOSS, None)
    assert broker.losses() == {"a": 1, "b": 1}


def test_ten_rescuers_at_once_restore_each_message_once(broker, redis):
    names = [f"m{number}" for number in range(30)]
    broker.publish(*names)
    broker.take("dead", 30)
    gate, outcomes = threading.Barrier(10), []

    def rescue():
        unacked = UnackedMessages(Connection(broker.url))
        gate.wait()
        outcomes.append(unacked.give_back_all("dead", LOSS, set()))
        unacked.close()

    threads = [threading.Thread(target=rescue) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcome[Outcome.RESTORED] for outcome in outcomes) == 30
    assert redis.llen("orders") == 30 and set(broker.losses()) == set(names)


def test_a_late_ack_of_a_dead_worker_changes_only_its_own_hash(broker, unacked, redis):
    broker.publish("a")
    broker.take("dead", 1)
    tag, zombie = tag_of(redis, "a"), broker.open[-1]
    unacked.give_back_all("dead", LOSS, None)
    broker.take("living", 1)
    zombie.default_channel.qos.ack(tag)
    assert redis.hkeys(keys.unacked("living")) == [tag.encode()], "the copy of the living is still there to restore"


def test_just_at_the_limit_a_suspect_is_restored(broker, unacked):
    broker.publish("a")
    for _ in range(LOSS.limit):
        broker.take("dead", 1)
        assert unacked.give_back_all("dead", LOSS, None) == {Outcome.RESTORED: 1}
    assert broker.losses() == {"a": LOSS.limit}


def test_over_the_limit_a_suspect_is_quarantined_until_it_is_reported(broker, unacked, redis):
    broker.publish("a")
    for _ in range(LOSS.limit + 1):
        broker.take("dead", 1)
        outcomes = unacked.give_back_all("dead", LOSS, None)
    assert outcomes == {Outcome.QUARANTINED: 1}
    assert not redis.llen("orders") and not unacked.count("dead")
    assert unacked.unreported() == ["a"]
    entry = unacked.take_unreported("a", "living")
    assert entry["losses"] == 4 and entry["message"]["headers"]["id"] == "a"
    assert unacked.take_unreported("a", "another") is None, "one reports it"
    unacked.record_stored("a", "a", "work")
    assert unacked.unreported() == []


def test_quarantined_tasks_are_listed_and_sent_again_without_losses(broker, unacked, redis, capsys):
    broker.publish("a")
    broker.take("dead", 1)
    unacked.give_back_all("dead", Loss("dead", "killed", limit=0), None)
    assert main([broker.url]) == 0 and "a work 1 losses" in capsys.readouterr().out
    assert main([broker.url, "--send", "a", "b"]) == 1
    assert capsys.readouterr().out == "a: sent\nb: not in quarantine\n"
    assert broker.losses() == {"a": 0} and not unacked.quarantined() and not unacked.unreported()
    assert main([broker.url]) == 0 and capsys.readouterr() == ("", "No task is in quarantine\n")


def test_the_command_for_the_quarantine_names_a_wrong_broker(capsys):
    assert main(["redis://:secret@127.0.0.1:1/0"]) == 1
    err = capsys.readouterr().err
    assert "127.0.0.1:1" in err and "refused" in err and "secret" not in err
    for broker in ("amqp://127.0.0.1", "nonsense://127.0.0.1", "127.0.0.1:6379"):
        with pytest.raises(SystemExit):
            main([broker])
        assert "is not the address of a Redis" in capsys.readouterr().err


def test_a_task_at_the_limit_is_restored_if_it_did_not_run(broker, unacked):
    broker.publish("a")
    for _ in range(LOSS.limit):
        broker.take("dead", 1)
        unacked.give_back_all("dead", LOSS, None)
    broker.take("dead", 1)
    assert unacked.give_back_all("dead", LOSS, set()) == {Outcome.RESTORED: 1}
    assert broker.losses() == {"a": LOSS.limit}


def test_a_message_from_a_direct_exchange_returns_to_the_bound_queue(broker, unacked):
    queue = Queue("letters", Exchange("post", type="direct"), routing_key="abroad")
    broker.publish("a", queue=queue)
    broker.take("dead", 1, queue)
    unacked.give_back_all("dead", LOSS, set())
    assert broker.losses("letters") == {"a": 0}


def test_a_message_from_a_topic_exchange_returns_if_the_type_is_known(broker):
    queue = Queue("letters", Exchange("topical", type="topic"), routing_key="abroad.#")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        broker.publish("a", queue=Queue("letters", queue.exchange, routing_key="abroad.far"))
    broker.take("dead", 1, queue)
    unacked = UnackedMessages(Connection(broker.url), {"topical": "topic"})
    assert unacked.give_back_all("dead", LOSS, set())[Outcome.RESTORED] == 1
    unacked.close()


def test_a_message_stays_held_if_no_queue_is_bound_any_more(broker, unacked, redis):
    queue = Queue("letters", Exchange("post", type="direct"), routing_key="abroad")
    broker.publish("a", queue=queue)
    broker.take("dead", 1, queue)
    redis.delete("_kombu.binding.post")
    assert unacked.give_back_all("dead", LOSS, set()) == {Outcome.HOMELESS: 1}
    assert unacked.count("dead") == 1


def test_a_returned_message_keeps_its_priority(broker, unacked, redis):
    broker.publish("a", priority=6)
    broker.take("dead", 1)
    unacked.give_back_all("dead", LOSS, set())
    assert redis.llen("orders\x06\x166") == 1
    assert unacked.lengths(["orders"]) == 1


def test_the_key_prefix_applies_to_all_keys(redis, redis_server):
    broker = Broker(redis_server.url, global_keyprefix="shop:")
    broker.publish("a")
    broker.take("dead", 1)
    unacked = UnackedMessages(Connection(broker.url, transport_options=broker.options))
    unacked.enter("dead")
    assert unacked.holders() == ["dead"] and unacked.count("dead") == 1
    assert unacked.give_back_all("dead", LOSS, None) == {Outcome.RESTORED: 1}
    assert redis.llen("shop:orders") == 1
    assert all(key.startswith(b"shop:") for key in redis.scan_iter())
    unacked.close()
    for connection in broker.open:
        connection.close()


def test_a_holder_leaves_only_when_it_holds_nothing(broker, unacked):
    broker.publish("a")
    broker.take("dead", 1)
    unacked.enter("dead")
    unacked.leave("dead")
    assert unacked.holders() == ["dead"]
    unacked.give_back_all("dead", LOSS, set())
    unacked.leave("dead")
    assert unacked.holders() == []


def test_messages_of_unprotected_workers_return_only_after_the_timeout(broker, unacked, redis):
    broker.publish("a")
    channel = broker.connect().channel()
    channel.do_restore = False
    channel.basic_get("orders")
    unacked.sweep_shared(3600)
    assert redis.hlen("unacked") == 1
    unacked.sweep_shared(0)
    assert redis.hlen("unacked") == 0 and redis.llen("orders") == 1


def test_running_messages_stay_finished_ones_are_acked_others_return(broker, unacked, redis):
    broker.publish("running", "done", "prefetched")
    broker.take("mine", 3)
    running, done = tag_of(redis, "running", "mine"), tag_of(redis, "done", "mine")
    unacked.give_back_all("mine", LOSS, (), keep={running}, settled={done})
    assert broker.losses() == {"prefetched": 0}
    assert redis.hkeys(keys.unacked("mine")) == [running.encode()]
