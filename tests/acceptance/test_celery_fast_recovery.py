"""Tasks of a Celery worker that died with its heart run again at once, because the next worker proves both deaths.

The control plane is a real one with default settings, where silence takes 345 s.
"""

import os
import signal
import subprocess
import time

import psutil
import pytest

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet, ended, last_line
from tests.support.processes import SHORT, eventually, freeze
from tests.support.processes import fleet as control_plane

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]
SOON = 60  # seconds, with the start of a worker on a busy machine: far below the 345 s of the defaults
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    defaults = dict.fromkeys(SHORT, "")
    with control_plane(tmp_path_factory.mktemp("plane"), CELERY_BROKER_URL="filesystem://", **defaults) as running:
        for name in SHORT:
            del running.env[name]
        running.url = running.web()
        yield running


@pytest.fixture
def workers(tmp_path, plane, redis_server):
    """Return workers of one application that share a state folder, like those of one machine."""
    state = {"CONTROLPLANE_STATE_DIR": str(tmp_path / "state")}
    with celery_fleet(tmp_path, redis_server.url, plane.url, plane.token("worker")) as fleet:
        fleet.redis.flushall()
        fleet.start_one = lambda name, **options: fleet.worker(name, **state, **options)
        fleet.files = tmp_path / "state/servers"
        yield fleet


def server(plane, name):
    items = plane.call("GET", f"{plane.url}/api/v1/servers?search={name}@host", plane.token("viewer"))["items"]
    return next((one for one in items if one["name"] == f"{name}@host"), None)


def registered(plane, workers, name):
    """Wait until the death of a worker can be proved. Return the file of its server."""
    found = eventually(lambda: (one := server(plane, name)) and one["state"] == "RUNNING" and one, why="it registers")
    return eventually(lambda: next(workers.files.glob(f"{found['id']}.json"), None), why="its file has its name")


def test_a_container_that_starts_again_recovers_the_tasks_of_its_first_life(plane, workers):
    """A PID namespace stands for the container: the kernel ends all of it with its first process."""
    if subprocess.run([*CONTAINER, "true"], check=False).returncode:
        pytest.skip("this machine makes no PID namespaces")
    workers.start_one("first", prefix=CONTAINER)
    registered(plane, workers, "first")
    workers.send("work", "running", UNTIL_RELEASED)
    workers.send("work", "prefetched", 0)
    workers.begun("running")
    eventually(lambda: workers.unacked() == 2, why="both are held")
    workers.kill("first")
    workers.start_one("second", prefix=CONTAINER)
    workers.begun("running", 2, within=SOON)
    workers.release("running")
    ended(workers, "running", "prefetched")
    assert workers.count("end") == {"running": 1, "prefetched": 1}
    eventually(lambda: server(plane, "first")["state"] in ("ERROR", "NOT_RUNNING"), why="its end is reported")
    eventually(lambda: workers.unacked() == 0, why="all is acknowledged")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_worker_and_heart_killed_together_are_reported_by_the_next_worker(plane, workers, pool):
    name = f"victim-{pool}"
    workers.start_one(name, pool=pool)
    file = registered(plane, workers, name)
    workers.send("spawn", "running", 600)
    eventually(workers.entries, why="its process runs")
    child = int(workers.entries()[0].what.removeprefix("child:"))
    workers.kill(name, heart=True)
    workers.start_one(f"next-{pool}", pool=pool)
    eventually(lambda: len(workers.entries()) == 2, within=SOON, why="the task runs again")
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    eventually(lambda: server(plane, name)["state"] in ("ERROR", "NOT_RUNNING"), why="its end is reported")
    eventually(lambda: not file.exists(), why="its file goes")


def test_a_stopped_main_process_without_its_heart_proves_nothing(plane, workers):
    workers.start_one("stopped")
    registered(plane, workers, "stopped")
    workers.send("work", "running", UNTIL_RELEASED)
    first = workers.begun("running")
    heart = workers.heart_of("stopped")
    freeze(workers.processes["stopped"])
    os.kill(heart, signal.SIGKILL)
    workers.start_one("other")
    registered(plane, workers, "other")
    time.sleep(3)
    assert server(plane, "stopped")["state"] == "RUNNING"
    assert workers.count("start") == {"running": 1}
    os.kill(workers.processes["stopped"].pid, signal.SIGKILL)
    second = workers.begun("running", 2, within=SOON)
    assert last_line(workers, "running", first.pid) < second.at


def test_a_worker_that_ends_by_itself_leaves_no_file(plane, workers):
    workers.start_one("polite")
    file = registered(plane, workers, "polite")
    os.kill(workers.processes["polite"].pid, signal.SIGTERM)
    assert workers.processes["polite"].wait(40) == 0
    eventually(lambda: not list(file.parent.iterdir()), why="nothing is left")


def test_without_fast_recovery_a_worker_makes_no_file(plane, workers):
    workers.start_one("plain", CONTROLPLANE_CELERY_FAST_RECOVERY="false")
    eventually(lambda: (one := server(plane, "plain")) and one["state"] == "RUNNING", why="it registers")
    assert not workers.files.exists()
