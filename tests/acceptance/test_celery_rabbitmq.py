"""Protected Celery workers on a real RabbitMQ, which redelivers by itself: soon, and not endlessly."""

import os
import signal
import time

import pytest

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet, ended, judged_soon, last_line, registered
from tests.support.celery_plane import TIMEOUT
from tests.support.processes import eventually
from tests.support.services import RabbitMQ, Redis

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]
HEARTBEAT = 10  # seconds; RabbitMQ closes a connection that is silent for this time


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory):
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with Redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def fleet(tmp_path, rabbitmq, results, plane):
    with celery_fleet(tmp_path, rabbitmq.url, plane.url, BACKEND=results.url) as fleet:
        with fleet.app.connection_for_write() as connection:
            connection.default_channel.queue_delete("orders")
        yield fleet


def test_tasks_of_a_killed_worker_run_elsewhere_and_its_state_is_error(fleet, plane):
    fleet.worker("victim")
    fleet.ready("victim")
    registered(plane, "victim")
    fleet.send("work", "running", UNTIL_RELEASED, id="running")
    fleet.send("work", "prefetched", 0)
    fleet.begun("running")
    fleet.worker("living")
    fleet.ready("living")
    fleet.kill("victim")
    fleet.begun("running", 2)
    fleet.release("running")
    ended(fleet, "running", "prefetched")
    eventually(lambda: plane.server("victim@host")["state"] == "ERROR", why="it said so")
    eventually(lambda: "LOST" in plane.states_of("running"), why="the loss is recorded")


def test_children_of_a_frozen_main_process_stop_before_the_task_runs_elsewhere(fleet, plane):
    fleet.worker("victim")
    fleet.ready("victim")
    registered(plane, "victim")
    fleet.send("work", "running", UNTIL_RELEASED)
    first = fleet.begun("running")
    fleet.worker("living")
    fleet.ready("living")
    judged_soon(plane, "victim")
    frozen_at = time.time()
    os.kill(fleet.processes["victim"].pid, signal.SIGSTOP)
    second = fleet.begun("running", 2)
    assert last_line(fleet, "running", first.pid) < second.at, "it ran in two places"
    assert second.at - frozen_at < 120, "Celery's own setting"


def test_a_task_that_kills_its_child_is_stopped_after_three_resubmissions(fleet, plane):
    fleet.worker("one", concurrency=2)
    fleet.ready("one")
    poison = fleet.send("poison", False, id="poison")
    fleet.send("work", "by", 0.1)
    eventually(lambda: poison.state == "FAILURE", why="it failed")
    ended(fleet, "by")
    assert fleet.count("start") == {"poison": 4, "by": 1}
    with fleet.app.connection_for_read() as connection:
        message = eventually(lambda: connection.default_channel.basic_get("controlplane.quarantine"))
    assert message.headers["id"] == "poison" and message.headers["losses"] == 4


def test_no_task_is_killed_while_the_control_plane_is_away(fleet, plane):
    fleet.env["CONTROLPLANE_CELERY_CONDEMNED_FOR"] = "6"  # as long as the heart may fail to ask the broker
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    judged_soon(plane, "one")
    fleet.send("work", "running", 4 * TIMEOUT)  # longer than each of the two permissions without a new answer
    fleet.begun("running")
    plane.down = True
    ended(fleet, "running")
    assert fleet.count("start") == {"running": 1} and fleet.processes["one"].poll() is None


def test_a_warm_shutdown_ends_running_tasks_and_returns_the_others(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    fleet.send("work", "prefetched", 0)
    fleet.begun("running")
    os.kill(fleet.processes["one"].pid, signal.SIGTERM)
    eventually(lambda: "TERMINATING" in plane.states(), why="it says so")
    fleet.release("running")
    assert fleet.processes["one"].wait(40) == 0
    assert fleet.count("end")["running"] == 1
    assert plane.server("one@host")["state"] == "TERMINATED_GRACEFULLY"
    fleet.worker("two")
    ended(fleet, "prefetched")
    assert set(fleet.count("start").values()) == {1}
