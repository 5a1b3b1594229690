"""Messages of a lost worker go back once, to where they were, on a real Redis."""

from __future__ import annotations

import json
import threading
import warnings

import pytest
from kombu import Connection, Exchange, Queue

from controlplane.agent.celery import keys
from controlplane.agent.celery.holdings import Holdings
from controlplane.agent.celery.quarantine import main
from controlplane.agent.celery.restoring import Loss, Outcome

LOSS = Loss("dead", "killed", limit=3)


class Broker:
    """Publishes, and takes as a worker of that instance does that never acknowledges."""

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
        """Of what waits in the queue, the next one first."""
        items = [json.loads(item) for item in reversed(self.connect().channel().client.lrange(queue, 0, -1))]
        return {item["headers"]["id"]: item["headers"].get("losses", 0) for item in items}


@pytest.fixture
def broker(redis, redis_server):
    broker = Broker(redis_server.url)
    yield broker
    for connection in broker.open:
        connection.close()


@pytest.fixture
def holdings(broker):
    holdings = Holdings(Connection(broker.url))
    yield holdings
    holdings.close()


def tag_of(redis, name, instance="dead"):
    items = redis.hgetall(keys.unacked(instance)).items()
    return next(tag.decode() for tag, data in items if json.loads(data)[0]["headers"]["id"] == name)


def test_suspects_go_to_the_tail_with_a_loss_and_bystanders_to_the_head_in_their_order(broker, holdings, redis):
    broker.publish("a", "b", "c", "waiting")
    assert broker.take("dead", 3) == ["a", "b", "c"]
    outcomes = holdings.give_back_all("dead", LOSS, {tag_of(redis, "a")})
    assert outcomes == {Outcome.RESTORED: 3}
    assert list(broker.losses().items()) == [("b", 0), ("c", 0), ("waiting", 0), ("a", 1)]
    assert holdings.count("dead") == 0 and not redis.exists("unacked_index:dead")


def test_when_nobody_knows_what_ran_all_are_suspects(broker, holdings):
    broker.publish("a", "b")
    broker.take("dead", 2)
    holdings.give_back_all("dead", LOSS, None)
    assert broker.losses() == {"a": 1, "b": 1}


def test_ten_rescuers_at_once_restore_each_message_once(broker, redis):
    names = [f"m{number}" for number in range(30)]
    broker.publish(*names)
    broker.take("dead", 30)
    gate, outcomes = threading.Barrier(10), []

    def rescue():
        holdings = Holdings(Connection(broker.url))
        gate.wait()
        outcomes.append(holdings.give_back_all("dead", LOSS, set()))
        holdings.close()

    threads = [threading.Thread(target=rescue) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcome[Outcome.RESTORED] for outcome in outcomes) == 30
    assert redis.llen("orders") == 30 and set(broker.losses()) == set(names)


def test_a_late_ack_of_the_dead_worker_touches_only_its_own_emptied_hash(broker, holdings, redis):
    broker.publish("a")
    broker.take("dead", 1)
    tag, zombie = tag_of(redis, "a"), broker.open[-1]
    holdings.give_back_all("dead", LOSS, None)
    broker.take("living", 1)
    zombie.default_channel.qos.ack(tag)
    assert redis.hkeys(keys.unacked("living")) == [tag.encode()], "the copy of the living is still there to restore"


def test_just_at_the_limit_a_suspect_is_restored(broker, holdings):
    broker.publish("a")
    for _ in range(LOSS.limit):
        broker.take("dead", 1)
        assert holdings.give_back_all("dead", LOSS, None) == {Outcome.RESTORED: 1}
    assert broker.losses() == {"a": LOSS.limit}


def test_over_the_limit_a_suspect_is_quarantined_and_waits_for_somebody_to_report_it(broker, holdings, redis):
    broker.publish("a")
    for _ in range(LOSS.limit + 1):
        broker.take("dead", 1)
        outcomes = holdings.give_back_all("dead", LOSS, None)
    assert outcomes == {Outcome.QUARANTINED: 1}
    assert not redis.llen("orders") and not holdings.count("dead")
    assert holdings.unreported() == ["a"]
    entry = holdings.take_unreported("a", "living")
    assert entry["losses"] == 4 and entry["message"]["headers"]["id"] == "a"
    assert holdings.take_unreported("a", "another") is None, "one reports it"
    holdings.reported("a")
    assert holdings.unreported() == []


def test_what_is_quarantined_is_listed_and_sent_again_as_if_it_had_never_been_lost(broker, holdings, redis, capsys):
    broker.publish("a")
    broker.take("dead", 1)
    holdings.give_back_all("dead", Loss("dead", "killed", limit=0), None)
    assert main([broker.url]) == 0 and "a work 1 losses" in capsys.readouterr().out
    assert main([broker.url, "--send", "a", "b"]) == 1
    assert capsys.readouterr().out == "a: sent\nb: not in quarantine\n"
    assert broker.losses() == {"a": 0} and not holdings.quarantined() and not holdings.unreported()


def test_a_bystander_that_was_a_suspect_often_is_restored_nonetheless(broker, holdings):
    broker.publish("a")
    for _ in range(LOSS.limit):
        broker.take("dead", 1)
        holdings.give_back_all("dead", LOSS, None)
    broker.take("dead", 1)
    assert holdings.give_back_all("dead", LOSS, set()) == {Outcome.RESTORED: 1}
    assert broker.losses() == {"a": LOSS.limit}


def test_through_a_direct_exchange_it_goes_back_to_the_queue_that_is_bound(broker, holdings):
    queue = Queue("letters", Exchange("post", type="direct"), routing_key="abroad")
    broker.publish("a", queue=queue)
    broker.take("dead", 1, queue)
    holdings.give_back_all("dead", LOSS, set())
    assert broker.losses("letters") == {"a": 0}


def test_through_a_topic_exchange_too_when_its_type_is_known(broker):
    queue = Queue("letters", Exchange("topical", type="topic"), routing_key="abroad.#")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        broker.publish("a", queue=Queue("letters", queue.exchange, routing_key="abroad.far"))
    broker.take("dead", 1, queue)
    holdings = Holdings(Connection(broker.url), {"topical": "topic"})
    assert holdings.give_back_all("dead", LOSS, set())[Outcome.RESTORED] == 1
    holdings.close()


def test_where_no_queue_is_bound_any_more_the_message_stays_and_is_not_lost(broker, holdings, redis):
    queue = Queue("letters", Exchange("post", type="direct"), routing_key="abroad")
    broker.publish("a", queue=queue)
    broker.take("dead", 1, queue)
    redis.delete("_kombu.binding.post")
    assert holdings.give_back_all("dead", LOSS, set()) == {Outcome.HOMELESS: 1}
    assert holdings.count("dead") == 1


def test_priorities_stay(broker, holdings, redis):
    broker.publish("a", priority=6)
    broker.take("dead", 1)
    holdings.give_back_all("dead", LOSS, set())
    assert redis.llen("orders\x06\x166") == 1
    assert holdings.lengths(["orders"]) == 1


def test_with_a_prefix_for_all_keys_everything_is_under_it(redis, redis_server):
    broker = Broker(redis_server.url, global_keyprefix="shop:")
    broker.publish("a")
    broker.take("dead", 1)
    holdings = Holdings(Connection(broker.url, transport_options=broker.options))
    holdings.enter("dead")
    assert holdings.holders() == ["dead"] and holdings.count("dead") == 1
    assert holdings.give_back_all("dead", LOSS, None) == {Outcome.RESTORED: 1}
    assert redis.llen("shop:orders") == 1
    assert all(key.startswith(b"shop:") for key in redis.scan_iter())
    holdings.close()
    for connection in broker.open:
        connection.close()


def test_a_holder_leaves_only_when_nothing_is_left(broker, holdings):
    broker.publish("a")
    broker.take("dead", 1)
    holdings.enter("dead")
    holdings.leave("dead")
    assert holdings.holders() == ["dead"]
    holdings.give_back_all("dead", LOSS, set())
    holdings.leave("dead")
    assert holdings.holders() == []


def test_what_unprotected_workers_left_goes_back_by_its_age_alone(broker, holdings, redis):
    broker.publish("a")
    channel = broker.connect().channel()
    channel.do_restore = False
    channel.basic_get("orders")
    holdings.sweep_shared(3600)
    assert redis.hlen("unacked") == 1
    holdings.sweep_shared(0)
    assert redis.hlen("unacked") == 0 and redis.llen("orders") == 1


def test_keeping_what_runs_and_acknowledging_what_is_done_the_rest_goes_back(broker, holdings, redis):
    broker.publish("running", "done", "prefetched")
    broker.take("mine", 3)
    running, done = tag_of(redis, "running", "mine"), tag_of(redis, "done", "mine")
    holdings.give_back_all("mine", LOSS, (), keep={running}, settled={done})
    assert broker.losses() == {"prefetched": 0}
    assert redis.hkeys(keys.unacked("mine")) == [running.encode()]
