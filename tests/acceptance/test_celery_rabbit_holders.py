"""The list of instances that may hold copies, on a real RabbitMQ, while several processes scan it."""

import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from kombu import Connection, Queue

from controlplane.agent.celery.broker.rabbit_connection import RabbitConnection, put
from controlplane.agent.celery.broker.rabbit_copies import RabbitCopies
from controlplane.agent.celery.broker.rabbit_holders import HOLDERS, RabbitHolders
from tests.support.services import RabbitMQ

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory):
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture
def broker(rabbitmq):
    broker = RabbitConnection(Connection(rabbitmq.url))
    with broker.channel() as channel:
        channel.queue_delete(HOLDERS)
    yield broker
    broker.close()


def scan_now(holders, broker):
    holders._scan_at = 0.0
    return holders.current(broker)


def entries(broker):
    found = Counter()
    with broker.channel() as channel:
        Queue(HOLDERS, durable=True)(channel).queue_declare()
        while (message := Queue(HOLDERS)(channel).get()) is not None:
            found[message.payload] += 1
    return found


@contextmanager
def others_that_scan(rabbitmq, count=3, pause=0.05):
    """Scan the list all the time in other threads, each with its own connection."""
    ended = threading.Event()

    def scan():
        connection, holders = RabbitConnection(Connection(rabbitmq.url)), RabbitHolders()
        while not ended.wait(pause):
            scan_now(holders, connection)
        connection.close()

    threads = [threading.Thread(target=scan) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield
    ended.set()
    for thread in threads:
        thread.join(20)


def test_threads_of_one_process_enter_its_instance_once(broker, rabbitmq):
    holders = RabbitHolders()
    own = [RabbitCopies(Connection(rabbitmq.url), holders) for _ in range(4)]
    threads = [threading.Thread(target=one.enter, args=["one"]) for one in own]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert entries(broker) == {"one": 1}
    for one in own:
        one.close()


def test_a_scan_removes_surplus_entries_and_keeps_one(broker):
    for instance in ("one", "two", "one", "one"):
        with broker.channel() as channel:
            channel.queue_declare(HOLDERS, durable=True, auto_delete=False)
            put(channel, HOLDERS, instance)
    assert RabbitHolders().current(broker) == ["one", "two"]
    assert entries(broker) == {"one": 1, "two": 1}


def test_an_instance_that_leaves_while_others_scan_leaves_no_entry(broker, rabbitmq):
    with others_that_scan(rabbitmq):
        for number in range(5):
            holders = RabbitHolders()
            holders.enter(broker, f"leaves-{number}")
            if number % 2:
                with broker.channel() as channel:
                    put(channel, HOLDERS, f"leaves-{number}")
                holders._puts[f"leaves-{number}"] += 1
            while not holders.leave(broker, f"leaves-{number}"):
                pass
            holders.enter(broker, f"leaves-{number}")
    assert entries(broker) == {}


def test_a_living_instance_keeps_an_entry_while_others_scan_and_leave(broker, rabbitmq):
    living, rescuer = RabbitHolders(), RabbitHolders()
    living.enter(broker, "living")
    with others_that_scan(rabbitmq):
        until = time.monotonic() + 5
        while time.monotonic() < until:
            scan_now(living, broker)
            assert rescuer.leave(broker, "unknown")
    assert scan_now(living, broker) == ["living"]
    assert entries(broker) == {"living": 1}


def test_an_instance_enters_again_after_somebody_deleted_the_list(broker):
    holders = RabbitHolders()
    holders.enter(broker, "one")
    assert holders.current(broker) == ["one"]
    with broker.channel() as channel:
        channel.queue_delete(HOLDERS)
    for _ in range(3):
        scan_now(holders, broker)
    assert entries(broker) == {"one": 1}
    assert holders.leave(broker, "one")
    assert entries(broker) == {}
