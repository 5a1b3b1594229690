"""Protected Celery workers on a RabbitMQ with a `consumer_timeout` of 12 s. Its default is 30 minutes."""

import time

import pytest
from kombu import Exchange, Queue

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet, ended, registered
from tests.support.processes import eventually
from tests.support.services import RabbitMQ, Redis

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]
ALLOWED = 12  # seconds; a worker acknowledges after 3 s, and a slow machine may delay that
LONG = ALLOWED + 4  # RabbitMQ looks every second
POOLS = ("prefork", "threads", "solo")
SETTINGS = f"{{consumer_timeout, {ALLOWED * 1000}}}, {{channel_tick_interval, 1000}}"


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory):
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with Redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def fleet(tmp_path, rabbitmq, results, plane):
    with celery_fleet(tmp_path, rabbitmq.url, plane.url, BACKEND=results.url, PREFETCH="1") as fleet:
        with fleet.app.connection_for_write() as connection:
            for queue in ("orders", "controlplane.quarantine", "controlplane.holders"):
                connection.default_channel.queue_delete(queue)
        yield fleet


def waiting(fleet, queue):
    with fleet.app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(queue, durable=True, auto_delete=False).message_count


@pytest.mark.parametrize("idle", ["prefork", *(pytest.param(p, marks=pytest.mark.exhaustive) for p in POOLS[1:])])
def test_in_each_pool_a_task_longer_than_the_timeout_begins_once_and_ends_once(fleet, plane, idle):
    """Each worker runs one long task. Another worker is idle, and would get a task that RabbitMQ sends again."""
    for pool in POOLS:
        fleet.worker(pool, pool=pool)
    fleet.ready(*POOLS)
    registered(plane, *POOLS)
    long, later = ([f"{name}-{number}" for number in range(3)] for name in ("long", "later"))
    tasks = [fleet.send("work", name, LONG) for name in long]
    for name in long:
        fleet.begun(name)
    assert len({entry.pid for entry in fleet.entries("start")}) == 3, "each worker runs one"
    fleet.worker("idle", pool=idle)
    fleet.ready("idle")
    tasks += [fleet.send("work", name, 0, countdown=LONG) for name in later]
    ended(fleet, *long, *later)
    eventually(lambda: {task.state for task in tasks} == {"SUCCESS"}, why="all have their result")
    assert fleet.count("start") == fleet.count("end") == dict.fromkeys([*long, *later], 1)
    assert not any("PRECONDITION" in fleet.log(name) for name in (*POOLS, "idle"))
    assert all(process.poll() is None for process in fleet.processes.values())


@pytest.mark.parametrize("heart", [False, True], ids=["worker", "host"])
def test_early_acknowledged_tasks_of_a_killed_worker_run_elsewhere_once(fleet, plane, heart):
    fleet.env["PREFETCH"] = "2"
    fleet.app.conf.task_protocol = 1 if heart else 2
    fleet.worker("victim")
    fleet.ready("victim")
    registered(plane, "victim")
    for name, options in (("running", {}), ("later", {"countdown": LONG})):
        fleet.send("work", name, UNTIL_RELEASED if name == "running" else 0, id=name, compression="gzip", **options)
    fleet.begun("running")
    eventually(lambda: copies_of(fleet, plane, "victim") == 2, why="copies of both are kept")
    fleet.kill("victim", heart=heart)
    if heart:
        plane.judge_soon("victim")
    fleet.worker("living")
    fleet.begun("running", 2)
    fleet.release("running")
    ended(fleet, "running", "later")
    assert fleet.count("start") == {"running": 2, "later": 1}
    if not heart:
        eventually(lambda: "LOST" in plane.states_of("running"), why="the loss is recorded")
        eventually(lambda: waiting(fleet, "controlplane.holders") == 1, why="the dead one left")


def copies_of(fleet, plane, name):
    """Return the number of copies in a worker's own queues."""
    registered(plane, name)
    instance = plane.server(f"{name}@host")["instance_id"]
    return sum(waiting(fleet, f"controlplane.held.{instance}.{slot}") for slot in range(2))


def test_a_task_that_ends_its_whole_worker_is_quarantined_and_fails(fleet, plane):
    fleet.env["CONTROLPLANE_CELERY_MAX_RESUBMISSIONS"] = "2"
    for name in ("one", "two"):
        fleet.worker(name)
    fleet.ready("one", "two")
    registered(plane, "one", "two")
    poison = fleet.send("poison", id="poison")
    fleet.send("work", "bystander", 0.1)

    def is_over():
        for name, process in list(fleet.processes.items()):
            if process.poll() is not None:
                fleet.worker(name)
        return poison.state == "FAILURE" and fleet.count("end")["bystander"]

    eventually(is_over, within=150, why="the poison failed, the other completed")
    assert fleet.count("start")["poison"] == 3
    eventually(lambda: waiting(fleet, "controlplane.quarantine") == 1, why="it is in quarantine")
    eventually(lambda: "QUARANTINED" in plane.states_of("poison"), why="that is recorded")


def test_no_message_waits_behind_a_long_task_while_a_worker_is_idle(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    fleet.send("work", "long", UNTIL_RELEASED)
    fleet.begun("long")
    eventually(lambda: copies_of(fleet, plane, "one") == 1, why="it is acknowledged early")
    for name in ("a", "b"):
        fleet.send("work", name, 0)
    fleet.worker("two")
    ended(fleet, "a", "b")
    assert not fleet.count("end")["long"], "they did not wait for it"
    fleet.release("long")
    ended(fleet, "long")
    fleet.kill("two")
    fleet.send("work", "c", 0)
    ended(fleet, "c")


def test_a_long_task_that_fails_becomes_a_dead_letter_if_configured(fleet, plane):
    """The task rejects its failures, and RabbitMQ sends them to the exchange for dead letters."""
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    fleet.app.conf.task_queues = [Queue("letters", Exchange(""), routing_key="letters", queue_arguments=dead)]
    assert waiting(fleet, "dead") == 0
    fleet.worker("one", "-Q", "letters", LETTERS="1")
    fleet.ready("one")
    task = fleet.send("fail_late", 5, queue="letters")
    eventually(lambda: task.state == "FAILURE", why="it failed")
    eventually(lambda: waiting(fleet, "dead") == 1, why="it is a dead letter")
    assert fleet.count("start") == {"fail_late": 1}


def test_in_each_pool_a_job_longer_than_the_timeout_begins_once_and_ends_once(fleet, plane):
    attempts = {}
    for pool in ("prefork", "solo"):  # the first worker is busy when the second one claims
        fleet.worker(pool, pool=pool)
        fleet.ready(pool)
        registered(plane, pool)
        action = {
            "type": "celery", "task": "tests.support.celery_app.work", "args": [pool, LONG], "kwargs": {},
            "queue": "orders",
        }  # fmt: skip
        attempts[pool] = plane.submit(action, None, None)
        fleet.begun(pool)
    for pool, attempt in attempts.items():
        report = eventually(lambda attempt=attempt: plane.final(attempt), why="it ends")
        assert (report["event"], report["output"]) == ("COMPLETED", pool)
    assert len({entry.pid for entry in fleet.entries("start")}) == 2
    assert fleet.count("start") == fleet.count("end") == dict.fromkeys(attempts, 1)
    for name in ("next-1", "next-2"):
        fleet.send("work", name, 0)
    ended(fleet, "next-1", "next-2")


def test_running_and_scheduled_tasks_survive_a_restart_of_the_broker(fleet, plane, rabbitmq):
    fleet.env["PREFETCH"] = "2"
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    fleet.send("work", "later", 0, countdown=LONG)
    fleet.begun("running")
    eventually(lambda: copies_of(fleet, plane, "one") == 2, why="copies of both are kept")
    time.sleep(3)  # RabbitMQ writes acknowledgements later than messages
    rabbitmq.__exit__()
    rabbitmq.__enter__()
    eventually(lambda: fleet.log("one").count("Connected to") >= 2, why="it is connected again")
    fleet.release("running")
    ended(fleet, "running", "later")
    assert fleet.count("start") == fleet.count("end") == {"running": 1, "later": 1}
    eventually(lambda: copies_of(fleet, plane, "one") == 0, why="no copy is left")
    fleet.send("work", "next", 0)
    ended(fleet, "next")


def test_tasks_prefetched_behind_a_long_task_begin_once(fleet, plane):
    fleet.env["PREFETCH"] = "4"
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    for name, seconds in (("long", LONG), ("a", 0), ("b", 0)):
        fleet.send("work", name, seconds)
    ended(fleet, "long", "a", "b")
    assert fleet.count("start") == fleet.count("end") == {"long": 1, "a": 1, "b": 1}
    assert "PRECONDITION_FAILED" not in fleet.log("one") and fleet.processes["one"].poll() is None
    eventually(lambda: copies_of(fleet, plane, "one") == 0, why="no copy is left")
