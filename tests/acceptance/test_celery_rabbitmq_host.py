"""Protected Celery workers on a real RabbitMQ: a host that freezes and wakes, and the way out of the quarantine."""

import os
import signal
from functools import partial

import pytest

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet, ended, last_line, registered
from tests.support.processes import eventually
from tests.support.services import RabbitMQ, Redis

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture
def fleet(tmp_path, plane):
    for name in ("rabbitmq", "redis"):
        (tmp_path / name).mkdir()
    with (
        RabbitMQ(tmp_path / "rabbitmq") as broker,
        Redis(tmp_path / "redis") as results,
        celery_fleet(tmp_path, broker.url, plane.url, BACKEND=results.url) as fleet,
    ):
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


@pytest.mark.parametrize("protocol", [1, 2])
def test_one_quarantined_task_is_sent_again_and_the_others_stay(fleet, plane, protocol):
    fleet.app.conf.task_protocol = protocol
    fleet.env["CONTROLPLANE_CELERY_MAX_RESUBMISSIONS"] = "0"
    fleet.worker("one")
    fleet.ready("one")
    for task in ("poison", "other"):
        fleet.send("poison", False, id=task)
        eventually(lambda task=task: plane.states_of(task)[-1:] == ["QUARANTINED"], why="it is in quarantine")
    plane.server("one@host")["answer"] = {"send": ["poison", "unknown"]}
    eventually(lambda: "SENT" in plane.states_of("poison"), why="it was sent")
    plane.server("one@host")["answer"] = {}
    eventually(lambda: fleet.count("start")["poison"] >= 3, why="it runs again")
    eventually(lambda: plane.states_of("poison")[-1] == "QUARANTINED", why="and comes back")
    assert plane.states_of("other")[-1] == "QUARANTINED" and "SENT" not in plane.states_of("other")
    with fleet.app.connection_for_read() as connection:
        channel = connection.default_channel
        waiting = partial(channel.queue_declare, "controlplane.quarantine", passive=True)
        eventually(lambda: waiting().message_count == 2, why="what the record says lies in the queue")
        messages = [channel.basic_get("controlplane.quarantine") for _ in range(2)]
        assert {(message.headers["quarantined_id"], message.headers["losses"]) for message in messages} == {
            ("poison", 1),
            ("other", 1),
        }
        assert channel.basic_get("controlplane.quarantine") is None
