"""Tasks that would end their worker, or whose end would not be reported. The loss counts only for that task."""

import pytest

from tests.support.celery_fleet import ended, registered
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]
FAILURES = ("memory", "recursion", "worker_lost", "time_limit")
LOSSES = ("sys_exit", "keyboard", "shutdown", "terminate")
LIMIT = 1  # resubmissions


@pytest.fixture(autouse=True)
def limit(fleet):
    fleet.env["CONTROLPLANE_CELERY_MAX_RESUBMISSIONS"] = str(LIMIT)


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_an_exception_of_a_task_ends_only_the_task(fleet, plane, pool):
    worker = fleet.worker("one", pool=pool, concurrency=2)
    fleet.ready("one")
    registered(plane, "one")
    sent = {kind: fleet.send("end_badly", kind, id=kind) for kind in (*FAILURES, *LOSSES)}
    fleet.send("work", "neighbour", 0.1)
    for kind, task in sent.items():
        eventually(lambda task=task: task.state == "FAILURE", why=f"{kind} failed")
    ended(fleet, "neighbour")
    eventually(lambda: fleet.unacked() == 0 and not fleet.redis.llen("orders"), why="every message is settled")
    expected = dict.fromkeys(FAILURES, 1) | dict.fromkeys(LOSSES, 1 + LIMIT)
    assert fleet.count("start") == expected | {"neighbour": 1}
    assert {task.decode() for task in fleet.redis.hkeys("controlplane:quarantine")} == set(LOSSES)
    assert worker.poll() is None, "its worker lives"
    assert type(sent["memory"].result).__name__ == "MemoryError"


@pytest.mark.parametrize("pool", ["threads", pytest.param("solo", marks=pytest.mark.exhaustive)])
def test_a_task_that_ends_its_process_at_once_is_quarantined_under_every_pool(fleet, plane, pool):
    fleet.worker("one", pool=pool)
    fleet.ready("one")
    registered(plane, "one")
    task = fleet.send("end_badly", "exit_at_once", id="exit_at_once")

    def is_over():
        if fleet.processes["one"].poll() is not None:
            fleet.worker("one", pool=pool)
        return task.state == "FAILURE"

    eventually(is_over, within=120, why="it failed")
    assert fleet.count("start") == {"exit_at_once": 1 + LIMIT}


def test_a_hard_time_limit_is_a_loss_if_the_task_returns_to_its_queue(fleet, plane):
    fleet.worker("one", concurrency=2)
    fleet.ready("one")
    registered(plane, "one")
    task = fleet.send("too_long", "slow", id="slow")
    eventually(lambda: plane.states_of("slow")[-1:] == ["QUARANTINED"], why="it is in quarantine")
    assert plane.states_of("slow").count("LOST") == LIMIT
    eventually(lambda: task.state == "FAILURE", why="it failed")
    assert "hard time limit" in str(task.result)
    assert fleet.count("start") == {"slow": 1 + LIMIT} and fleet.processes["one"].poll() is None
    eventually(lambda: fleet.unacked() == 0 and not fleet.redis.llen("orders"), why="every message is settled")


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_protocol_1_task_is_quarantined_under_its_id_and_sent_again(fleet, plane, whole):
    """The task kills its child process, or its worker with all processes."""
    fleet.env["CONTROLPLANE_CELERY_MAX_RESUBMISSIONS"] = "0"
    fleet.app.conf.task_protocol = 1
    for name in ("one", "two"):
        fleet.worker(name)
    fleet.ready("one", "two")
    registered(plane, "one", "two")
    task = fleet.send("poison", whole, id="poison")
    eventually(lambda: task.state == "FAILURE", why="it failed")
    eventually(lambda: fleet.redis.hkeys("controlplane:quarantine") == [b"poison"], why="its key is its id")
    eventually(lambda: "QUARANTINED" in plane.states_of("poison"), why="it is recorded under its id")
    for server in list(plane.servers.values()):
        server["answer"] = {"send": ["poison"]}
    eventually(lambda: fleet.count("start")["poison"] == 2, why="it begins again")
    eventually(lambda: "SENT" in plane.states_of("poison"), why="it was sent")
