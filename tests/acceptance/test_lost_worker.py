"""The promise on real processes: a worker is killed, its job finishes elsewhere, and its timeline shows how."""

import signal

import pytest

from tests.support import services
from tests.support.processes import Fleet, eventually, fleet

pytestmark = pytest.mark.acceptance

TIMELINE = ["CLAIMED", "RUNNING", "RESUBMITTED", "CLAIMED", "RUNNING", "COMPLETED"]


def kill_the_worker_of_a_running_job(fleet: Fleet, urls: list[str]) -> None:
    """Two workers, one job; the one that runs it gets SIGKILL."""
    client, operator = fleet.token("client"), fleet.token("operator")
    for number, name in enumerate(["worker-1", "worker-2"]):
        fleet.agent(name, urls[number % len(urls)], "--concurrency", "2")
    began = fleet.folder / "began"
    # The first try never ends by itself; the second finds that it has begun before.
    script = f'if [ -e "{began}" ]; then echo "try $JOB_ATTEMPT"; else touch "{began}"; sleep 600; fi'
    path = f"{urls[0]}/api/v1/jobs"
    job = fleet.call("POST", path, client, {"action": {"type": "script", "command": script}})

    def read_job(url=urls[0]):
        return fleet.call("GET", f"{url}/api/v1/jobs/{job['id']}", client)

    eventually(began.exists, why="the job's code runs")
    first = eventually(lambda: [a for a in read_job()["attempts"] if a["state"] == "RUNNING"])[0]["server"]
    victim = fleet.processes[first["name"]]
    victim.send_signal(signal.SIGKILL)
    assert victim.wait(60) == -signal.SIGKILL

    done = eventually(lambda: (job := read_job(urls[-1]))["state"] == "COMPLETED" and job, why="it completes")
    assert [entry["state"] for entry in done["timeline"] if entry["attempt"] is not None] == TIMELINE
    lost, second = done["attempts"]
    assert (lost["server"]["name"], lost["state"]) == (first["name"], "RESUBMITTED")
    assert second["server"]["id"] != first["id"]
    assert done["output"]["stdout"].strip() == "try 2"
    assert (done["resubmissions"], done["late_reports"]) == (1, [])

    def state_of_the_lost():
        return fleet.call("GET", f"{urls[0]}/api/v1/servers/{first['id']}", operator)["state"]

    eventually(lambda: state_of_the_lost() == "INACTIVE", why="the dead server is INACTIVE")
    events = fleet.call("GET", f"{urls[0]}/api/v1/servers/{first['id']}/events", operator)["items"]
    assert [event["to"] for event in events] == ["RUNNING", "DISCONNECTED", "NOT_RUNNING", "INACTIVE"]
    assert [event["actor"] for event in events] == ["server", "liveness", "liveness", "liveness"]


def test_on_one_machine_a_killed_workers_job_completes_on_another(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        one.executor("executor", "--beat")
        kill_the_worker_of_a_running_job(one, [url])


def test_on_many_machines_a_killed_workers_job_completes_on_another(tmp_path):
    with (
        services.Postgresql() as database,
        services.RabbitMQ(tmp_path) as broker,
        fleet(tmp_path, DATABASE_URL=database.url, CELERY_BROKER_URL=broker.url) as many,
    ):
        many.migrate()
        urls = [many.web("web-1"), many.web("web-2")]
        many.executor("executor-1")
        many.executor("executor-2")
        many.beat()
        kill_the_worker_of_a_running_job(many, urls)


def test_what_a_killed_workers_job_had_kept_is_found_on_another(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url, client = one.web(), one.token("client")
        one.executor("executor", "--beat", "--scheduler", "celery.beat:Scheduler")
        for name in ("worker-1", "worker-2"):
            one.agent(name, url, "--concurrency", "2")
        first = 'echo 40000 > "$JOB_CHECKPOINT"; sleep 600'
        script = f'if [ -e "$JOB_CHECKPOINT" ]; then cat "$JOB_CHECKPOINT"; else {first}; fi'
        job = one.call("POST", f"{url}/api/v1/jobs", client, {"action": {"type": "script", "command": script}})

        def read_job():
            return one.call("GET", f"{url}/api/v1/jobs/{job['id']}", client)

        kept = eventually(lambda: (job := read_job())["checkpoint"] and job, why="the checkpoint is kept")
        one.processes[kept["attempts"][0]["server"]["name"]].send_signal(signal.SIGKILL)
        done = eventually(lambda: (job := read_job())["state"] == "COMPLETED" and job, why="it completes")
        assert (done["output"]["stdout"].strip(), done["checkpoint"]) == ("40000", 40000)
        assert [attempt["state"] for attempt in done["attempts"]] == ["RESUBMITTED", "COMPLETED"]
