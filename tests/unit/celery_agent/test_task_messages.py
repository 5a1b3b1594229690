"""Messages of tasks in every protocol, serializer and compression: read as Celery reads them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Consumer
from kombu.serialization import register, unregister

from controlplane.agent.celery.broker import keys
from controlplane.agent.celery.broker.rabbitmq import QUARANTINED_ID, give_back
from controlplane.agent.celery.broker.restoring import Loss, Outcome
from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.messages import StoreFailure
from controlplane.agent.celery.worker.failures import store_failure_of
from controlplane.agent.celery.worker.task_messages import read_message, read_stored

SERIALIZERS = ["json", "yaml", "pickle", "msgpack", "reversed"]
ONCE = Loss("dead", "killed", limit=0)


@pytest.fixture(autouse=True, scope="module")
def signed():
    """Register a serializer that only the application has, like that of signed messages."""
    register(
        "reversed", lambda data: json.dumps(data)[::-1], lambda text: json.loads(text[::-1]), "application/x-reversed"
    )
    yield
    unregister("reversed")


@pytest.fixture
def sent(redis, redis_server):
    """Send a task and return it in the form that kombu keeps in Redis, with its application."""

    def send(protocol, serializer="json", compression=None):
        app = Celery("orders", broker=redis_server.url, set_as_current=False)
        app.conf.update(task_protocol=protocol, accept_content=SERIALIZERS, task_default_queue="orders")
        options = {
            "serializer": serializer,
            "compression": compression,
            "link_error": dict(app.signature("orders.tell")),
        }
        app.send_task("orders.charge", (17,), {"currency": "EUR"}, task_id="a", **options)
        return app, json.loads(redis.lindex("orders", 0))

    return send


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("serializer", SERIALIZERS)
@pytest.mark.parametrize("protocol", [1, 2])
def test_a_task_is_read_as_its_application_reads_it(sent, protocol, serializer, compression):
    app, stored = sent(protocol, serializer, compression)
    message = read_stored(app, stored, "tag", "?")
    assert (message.id, message.name) == ("a", "orders.charge")
    assert (list(message.context.args), message.context.kwargs) == ([17], {"currency": "EUR"})
    assert message.context.errbacks[0]["task"] == "orders.tell"


@pytest.mark.parametrize("protocol", [1, 2])
def test_the_headers_of_an_unreadable_message_are_used(sent, protocol):
    app, stored = sent(protocol, "pickle")
    app.conf.accept_content = ["json"]
    message = read_stored(app, stored, "tag", "?")
    assert (message.id, message.name) == (("tag", "?") if protocol == 1 else ("a", "orders.charge"))


@pytest.mark.parametrize("serializer", SERIALIZERS)
@pytest.mark.parametrize("protocol", [1, 2])
def test_a_quarantined_message_gets_its_id_when_an_application_reads_it(
    sent, redis, redis_server, protocol, serializer
):
    app, _ = sent(protocol, serializer)
    with Connection(redis_server.url, transport_options=keys.transport_options("dead")) as connection:
        channel = connection.channel()
        channel.do_restore = False
        channel.basic_get("orders")
        unacked = UnackedMessages(Connection(redis_server.url))
        assert unacked.give_back_all("dead", ONCE, None) == {Outcome.QUARANTINED: 1}
    [key] = unacked.unreported()
    entry = unacked.take_unreported(key, "living")
    order = StoreFailure(key, entry["name"], entry["losses"], entry["reason"], entry["message"])
    failures = []
    backend = SimpleNamespace(mark_as_failure=lambda id, error, **_: failures.append((id, str(error))))
    app.tasks["celery.backend_cleanup"].backend = backend
    unacked.record_stored(key, *store_failure_of(app, order))
    [(id, text)] = failures
    assert id == "a" and text.startswith("orders.charge ended its worker")
    assert {task: entry["name"] for task, entry in unacked.quarantined().items()} == {"a": "orders.charge"}
    assert not unacked.unreported()
    assert unacked.send_again("a") and redis.llen("orders") == 1
    assert read_stored(app, json.loads(redis.lindex("orders", 0)), "tag", "?").id == "a"
    unacked.close()


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("protocol", [1, 2])
def test_a_copy_that_is_published_again_reads_like_the_message(sent, redis, redis_server, protocol, compression):
    app, _ = sent(protocol, "json", compression)
    received: list[Any] = []
    with Connection(redis_server.url) as connection:
        for _ in range(2):  # what is received is republished and received again
            with Consumer(connection, app.amqp.queues["orders"], on_message=received.append):
                connection.drain_events(timeout=5)
            [message] = received
            received.clear()
            assert read_message(message).id == "a"
            assert give_back(app, message, Loss("me", "killed", limit=9), "a").outcome is Outcome.RESTORED
            message.ack()
    [stored] = [json.loads(item) for item in redis.lrange("orders", 0, -1)]
    assert stored["headers"]["losses"] == 2 and QUARANTINED_ID not in stored["headers"]
    assert read_stored(app, stored, "tag", "?").name == "orders.charge"
