"""Protected Celery workers on a Redis with access rules: the documented rule is enough."""

import os
import re
import time

import pytest
import redis as redis_py

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet, ended, registered
from tests.support.processes import ROOT, eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

LACKING = ("~orders*", "~unacked*", "~_kombu.*", "~*.celery.pidbox*", "~celery-task-meta-*")  # ~controlplane*


@pytest.fixture
def administrator(redis_server):
    with redis_py.Redis.from_url(redis_server.url) as client:
        client.flushall()
        yield client


@pytest.fixture
def fleet(tmp_path, redis_server, administrator, plane):
    """Yield workers whose user has the documented rights."""
    [rule] = re.findall(
        r"^ACL SETUSER orders .*$", (ROOT / "docs/how-to/give-celery-redis-rights.md").read_text(), re.MULTILINE
    )
    administrator.execute_command(*rule.split())
    url = redis_server.url.replace("redis://", "redis://orders:PASSWORD@")
    with celery_fleet(tmp_path, url, plane.url) as fleet:
        yield fleet


def test_a_worker_needs_only_the_documented_rights(fleet, plane, administrator):
    for name in ("victim", "living"):
        fleet.worker(name)
        fleet.ready(name)
        registered(plane, name)
    fleet.send("poison", False, id="poison")
    fleet.send("work", "running", UNTIL_RELEASED)
    first = fleet.begun("running")
    name = next(name for name, process in fleet.processes.items() if process.pid == os.getpgid(first.pid))
    fleet.kill(name, heart=True)
    plane.judge_soon(name)
    fleet.begun("running", 2)
    fleet.release("running")
    ended(fleet, "running")
    eventually(lambda: administrator.hexists("controlplane:quarantine", "poison"), why="the poison is quarantined")
    eventually(lambda: not administrator.smembers("controlplane:quarantine:unreported"), why="and reported")
    refused = [line for name in fleet.processes for line in fleet.log(name).splitlines() if "ermission" in line]
    assert not refused


def test_a_worker_without_the_rights_does_not_start_and_names_them(fleet, plane, administrator):
    administrator.execute_command("ACL", "SETUSER", "orders", "resetkeys", *LACKING)
    fleet.worker("one")
    assert fleet.processes["one"].wait(60) != 0
    assert "An access rule of Redis refuses" in fleet.log("one") and "~controlplane*" in fleet.log("one")
    assert not plane.servers


def test_missing_rights_are_logged_once_and_end_no_worker(fleet, plane, administrator):
    worker = fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    administrator.execute_command("ACL", "SETUSER", "orders", "resetkeys", *LACKING)
    eventually(lambda: "Messages cannot be moved" in fleet.log("one"), why="it is logged")
    time.sleep(8)  # in which the heart and the main process try again and again
    assert worker.poll() is None
    log = fleet.log("one")
    assert "An access rule of Redis refuses" in log
    assert log.count("Messages cannot be moved") == 1
    assert log.count("Broker unreachable") <= 2, "once for each command that is refused"
    administrator.execute_command("ACL", "SETUSER", "orders", "~controlplane*")
    fleet.send("work", "later")
    ended(fleet, "later")
