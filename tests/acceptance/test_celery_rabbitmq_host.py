"""Protected Celery workers on a real RabbitMQ: a host that freezes and wakes, and the way out of the quarantine."""

import os
import signal
from functools import partial

import pytest

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet, ended, judged_soon, last_line, registered
from tests.support.processes import eventually
from tests.support.services import RabbitMQ

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture
def fleet(tmp_path, broker, redis_server, plane):
    with celery_fleet(tmp_path, broker.url, plane.url, BACKEND=redis_server.url) as fleet:
        with fleet.app.connection_for_write() as connection:
            for queue in ("orders", "controlplane.quarantine", "controlplane.holders"):
                connection.default_channel.queue_delete(queue)
        yield fleet


def test_a_frozen_host_loses_no_task_and_stops_at_once_when_it_wakes(fleet, plane):
    fleet.worker("victim")
    fleet.ready("victim")
    registered(plane, "victim")
    running = fleet.send("work", "running", UNTIL_RELEASED)
    waiting = fleet.send("work", "prefetched", 0)
    first = fleet.begun("running")
    fleet.worker("living")
    fleet.ready("living")
    judged_soon(plane, "victim")
    heart = fleet.heart_of("victim")
    os.kill(heart, signal.SIGSTOP)
    fleet.kill("victim", signal.SIGSTOP)
    frozen_at = last_line(fleet, "running", first.pid)
    second = fleet.begun("running", 2, within=200)  # RabbitMQ's heartbeats, not ours
    eventually(lambda: plane.server("victim@host")["state"] == "DISCONNECTED", why="it is lost")
    assert 0 < second.at - frozen_at < 120, "Celery's own setting"
    fleet.kill("victim", signal.SIGCONT)
    os.kill(heart, signal.SIGCONT)
    assert fleet.processes["victim"].wait(120) != 0
    fleet.release("running")
    ended(fleet, "running", "prefetched")
    late = [entry for entry in fleet.entries() if entry.pid == first.pid and entry.at > second.at]
    assert len(late) <= 4, "the zombie stopped within the fence's look of 0.2 s"
    assert fleet.count("end") == {"running": 1, "prefetched": 1}
    eventually(lambda: (running.state, waiting.state) == ("SUCCESS", "SUCCESS"), why="both have their result")


def test_chosen_quarantined_tasks_are_sent_again_and_the_others_stay(fleet, plane):
    fleet.env["CONTROLPLANE_CELERY_MAX_RESUBMISSIONS"] = "0"
    fleet.worker("one")
    fleet.ready("one")
    for protocol, task in ((1, "first"), (2, "second"), (2, "other")):
        fleet.app.conf.task_protocol = protocol
        fleet.send("poison", False, id=task)
        eventually(lambda task=task: plane.states_of(task)[-1:] == ["QUARANTINED"], why="it is in quarantine")
    begun = fleet.count("start")["poison"]
    plane.server("one@host")["answer"] = {"send": ["first", "second", "unknown"]}
    eventually(lambda: all("SENT" in plane.states_of(task) for task in ("first", "second")), why="both were sent")
    plane.server("one@host")["answer"] = {}
    eventually(lambda: fleet.count("start")["poison"] >= begun + 2, why="they run again")
    for task in ("first", "second"):
        eventually(lambda task=task: plane.states_of(task)[-1] == "QUARANTINED", why="and comes back")
    assert plane.states_of("other")[-1] == "QUARANTINED" and "SENT" not in plane.states_of("other")
    with fleet.app.connection_for_read() as connection:
        channel = connection.default_channel
        waiting = partial(channel.queue_declare, "controlplane.quarantine", passive=True)
        eventually(lambda: waiting().message_count == 3, why="what the record says lies in the queue")
        messages = [channel.basic_get("controlplane.quarantine") for _ in range(3)]
        assert {(message.headers["quarantined_id"], message.headers["losses"]) for message in messages} == {
            ("first", 1),
            ("second", 1),
            ("other", 1),
        }
        assert channel.basic_get("controlplane.quarantine") is None
