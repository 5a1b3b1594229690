"""Messages of strangers on the broker: they stop no executor and run no code in it."""

import pickle

import pytest
from celery import Celery
from kombu import Connection, Exchange, Producer, Queue

from tests.support.processes import eventually, fleet
from tests.support.services import Redis

pytestmark = pytest.mark.acceptance


class Bomb:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def send_pickled(url, content):
    """Send a message that an executor would unpickle if it accepted that content type."""
    exchange = Exchange("controlplane", type="direct")
    with Connection(url) as connection:
        Producer(connection).publish(
            pickle.dumps(content), content_type="application/x-python-serialize", content_encoding="binary",
            exchange=exchange, routing_key="controlplane", declare=[Queue("controlplane", exchange, "controlplane")],
            headers={"task": "jobs.tasks.sweep_jobs", "id": "1"},
        )  # fmt: skip


def test_no_message_stops_an_executor_or_runs_code_in_it(tmp_path):
    ready, exploded = tmp_path / "ready", tmp_path / "exploded"
    with Redis(tmp_path) as redis, fleet(tmp_path, CELERY_BROKER_URL=redis.url) as running:
        running.web()
        ready.touch()  # of an executor before it
        running.start(
            "executor", "-W", "ignore", "-m", "celery", "-A", "controlplane.celery", "worker", "--pool", "threads",
            "--concurrency", "2", "--loglevel", "warning", "--beat", EXECUTOR_READY_FILE=str(ready),
        )  # fmt: skip
        eventually(lambda: not ready.exists(), why="what an executor before it left is gone")
        eventually(ready.exists, why="the executor receives messages")
        stranger = Celery(broker=redis.url)
        assert stranger.control.inspect(timeout=2).ping() is None
        send_pickled(redis.url, Bomb(exploded))
        stranger.control.shutdown()
        stranger.control.cancel_consumer("controlplane")
        stranger.control.pool_shrink(2)
        with running.connected() as database:
            before = database.execute("select reading from liveness_clock").fetchone()[0]
            later = "select reading > %s + 5 from liveness_clock"
            eventually(lambda: database.execute(later, [before]).fetchone()[0], why="checks go on")
        assert running.processes["executor"].poll() is None and not exploded.exists()
