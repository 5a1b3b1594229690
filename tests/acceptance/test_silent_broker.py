"""A broker that goes silent on open connections stops the checks for seconds, not for ever."""

import time

import pytest

from tests.support.processes import eventually, fleet
from tests.support.proxy import SilencingProxy
from tests.support.services import RabbitMQ, Redis

pytestmark = pytest.mark.acceptance

ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")
"""Options of an executor in `standalone` and `deploy/`: it sends no events, which RabbitMQ might never confirm."""
SILENCE = 2
"""BROKER_TIMEOUT, in seconds."""


@pytest.mark.parametrize(("server", "address"), [(Redis, "redis://{}/0"), (RabbitMQ, "amqp://guest:guest@{}//")])
def test_checks_go_on_after_the_connections_to_the_broker_went_silent(tmp_path, server, address):
    with server(tmp_path) as broker, SilencingProxy(f"broker://_@127.0.0.1:{broker.port}/") as proxy:
        url = address.format(proxy.url.rpartition("@")[2].strip("/"))
        with fleet(tmp_path, CELERY_BROKER_URL=url, BROKER_TIMEOUT=f"{SILENCE}s") as running:
            running.executor("executor", *ALONE)
            running.beat()
            with running.connected() as session:

                def count():
                    return session.execute("select tick from liveness_clock").fetchone()[0]

                eventually(lambda: count() > 1, why="checks run")
                proxy.silence()
                time.sleep(1)  # what was on its way has arrived
                checked = count()
                # Each process notices after twice the timeout and a second at most, and connects again.
                eventually(lambda: count() > checked + 1, within=60, why="checks run again")
