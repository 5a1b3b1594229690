"""An idle agent waits for work in a call that is kept back: it has it at once, and later where hints are lost."""

import signal
import time

import pytest

from tests.support.processes import Fleet, eventually, fleet

pytestmark = pytest.mark.acceptance

JOB = {"action": {"type": "script", "command": "true"}}
NEVER = "3600"  # seconds between claims: whatever is claimed was hinted at


def ended(one: Fleet, url: str, job: str) -> bool:
    return bool(one.call("GET", f"{url}/api/v1/jobs/{job}", one.token("client"))["state"] == "COMPLETED")


def submitted(one: Fleet, url: str) -> str:
    return str(one.call("POST", f"{url}/api/v1/jobs", one.token("client"), JOB)["id"])


def waiting_calls(one: Fleet) -> int:
    with one.connected() as database:
        return database.execute(
            "select count(*) from pg_stat_activity where application_name = 'controlplane listener'"
            " and datname = current_database()"
        ).fetchone()[0]


def test_an_agent_that_polls_once_an_hour_has_a_job_at_once_and_also_when_the_listener_is_cut(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        one.agent("worker-1", url, "--poll", NEVER, "--concurrency", "2")
        eventually(lambda: waiting_calls(one) == 1, why="the agent waits, and the web process listens")
        for _ in range(2):
            job = submitted(one, url)
            eventually(lambda job=job: ended(one, url, job), why="the job was hinted at")
        with one.connected() as database:
            database.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'controlplane listener' and datname = current_database()"
            )
        job = submitted(one, url)
        eventually(lambda: ended(one, url, job), why="the web process looks all the same")
        eventually(lambda: waiting_calls(one) == 1, why="it listens again")


def test_a_job_goes_to_the_idle_worker_though_one_that_is_busier_has_waited_longer(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        token = one.token("client")

        def waiter_since(worker: str, job: dict[str, object], state: str) -> None:
            """The job is there; its worker then waits for work again, behind all that waited before."""
            made = one.call("POST", f"{url}/api/v1/jobs", token, {**job, "tags": [worker]})["id"]
            eventually(
                lambda: one.call("GET", f"{url}/api/v1/jobs/{made}", token)["state"] == state, why=f"it is {state}"
            )

        for worker in ("busy", "idle"):
            one.agent(worker, url, "--poll", NEVER, "--concurrency", "2", "--tags", worker)
        waiter_since("busy", {"action": {"type": "script", "command": "sleep 600"}}, "RUNNING")
        for _ in range(2):
            waiter_since("idle", JOB, "COMPLETED")
            job = submitted(one, url)
            eventually(lambda job=job: ended(one, url, job), why="the job was hinted at")
            attempts = one.call("GET", f"{url}/api/v1/jobs/{job}", token)["attempts"]
            assert [attempt["server"]["name"] for attempt in attempts] == ["idle"]


def test_jobs_that_are_submitted_at_once_are_shared_among_idle_workers_though_each_has_room_for_all(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url, token = one.web(), one.token("client")

        def workers_of_a_batch() -> set[str]:
            made = one.call("POST", f"{url}/api/v1/jobs", token, [JOB] * 8)["items"]
            for job in made:
                eventually(lambda job=job: ended(one, url, job["id"]), why="no job of them waits for a worker")
            jobs = [one.call("GET", f"{url}/api/v1/jobs/{job['id']}", token) for job in made]
            return {attempt["server"]["name"] for job in jobs for attempt in job["attempts"]}

        for worker in ("worker-1", "worker-2"):
            one.agent(worker, url, "--poll", NEVER, "--concurrency", "8")
        for _ in range(10):  # where one is too slow to claim its share, that goes to the other
            if workers_of_a_batch() == {"worker-1", "worker-2"}:
                return
        raise AssertionError("one worker had them all")


def test_a_web_server_that_ends_answers_those_who_wait_and_they_go_on_waiting_at_the_next(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        port = int(url.rpartition(":")[2])
        one.agent("worker-1", url, "--poll", NEVER)
        eventually(lambda: waiting_calls(one) == 1, why="the agent waits")
        began = time.monotonic()
        one.processes["web"].send_signal(signal.SIGTERM)
        one.processes["web"].wait(20)
        assert time.monotonic() - began < 15, "it did not wait for the call"
        assert waiting_calls(one) == 0
        one.web("web-2", port=port)
        job = submitted(one, url)
        eventually(lambda: ended(one, url, job), why="the agent asked again")
