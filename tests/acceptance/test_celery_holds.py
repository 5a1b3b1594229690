"""Protected workers consume no queue that is on hold, on a real Redis and a real RabbitMQ."""

import os
import signal

import pytest

from tests.support.celery_fleet import celery_fleet, ended, registered
from tests.support.processes import eventually
from tests.support.services import RabbitMQ, Redis

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with Redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory):
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(params=["redis", "rabbitmq"])
def fleet(request, tmp_path, redis, plane):
    broker = request.getfixturevalue(request.param)
    with celery_fleet(tmp_path, broker.url, plane.url, BACKEND=redis.url) as fleet:
        fleet.kind = request.param
        # The worker of the test before was killed, perhaps before it settled its last task.
        if fleet.kind == "redis":
            fleet.redis.flushall()
        else:
            with fleet.app.connection_for_write() as connection:
                for queue in ("orders", "letters"):
                    connection.default_channel.queue_delete(queue)
        yield fleet


def test_a_worker_leaves_the_messages_of_a_held_queue_until_the_hold_ends(fleet, plane):
    fleet.worker("one", "-Q", "orders,letters")
    fleet.ready("one")
    registered(plane, "one")
    server = plane.server("one@host")
    fleet.send("work", "before", 0, queue="letters")
    ended(fleet, "before")

    server["answer"] = {"held_queues": ["letters"]}
    eventually(lambda: "Queue letters is on hold" in fleet.log("one"), why="the worker got the order")
    fleet.send("work", "held", 0, queue="letters")
    fleet.send("work", "free", 0, queue="orders")
    ended(fleet, "free")

    server["answer"] = {"held_queues": ["letters"], "cordoned": True}
    eventually(lambda: "Cordoned" in fleet.log("one"), why="the worker got the order")
    server["answer"] = {"held_queues": ["letters"]}
    fleet.send("work", "uncordoned", 0, queue="orders")
    ended(fleet, "uncordoned")

    if fleet.kind == "redis":
        known = fleet.log("one").count("Queue letters is on hold")
        for kind in ("normal", "pubsub"):
            fleet.redis.client_kill_filter(_type=kind, skipme=True)
        # On a slow machine, the worker may connect again between the two kills, and once more after the second.
        eventually(lambda: fleet.log("one").count("Queue letters is on hold") > known, why="the worker connected again")
        fleet.send("work", "connected", 0, queue="orders")
        ended(fleet, "connected")
    assert fleet.count("start")["held"] == 0

    server["answer"] = {"held_queues": []}
    ended(fleet, "held")
    assert fleet.count("start")["held"] == 1


def test_a_new_heart_releases_a_queue_whose_hold_ended_while_it_was_away(fleet, plane):
    fleet.worker("one", "-Q", "orders,letters")
    fleet.ready("one")
    registered(plane, "one")
    server = plane.server("one@host")
    server["answer"] = {"held_queues": ["letters"]}
    eventually(lambda: "Queue letters is on hold" in fleet.log("one"), why="the worker got the order")
    fleet.send("work", "held", 0, queue="letters")
    server["answer"] = {}
    os.kill(fleet.heart_of("one"), signal.SIGKILL)
    server["answer"] = {"held_queues": []}
    ended(fleet, "held")
    assert "starting another" in fleet.log("one")
