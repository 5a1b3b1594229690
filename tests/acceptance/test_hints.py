"""Hints of work: an idle agent waits in an open call and gets a job at once, or later if the hint is lost."""

import signal
import time

import pytest

from controlplane.agent.api.hints import WAIT
from tests.support.processes import Fleet, eventually, fleet

pytestmark = pytest.mark.acceptance

JOB = {"action": {"type": "script", "command": "true"}}
NEVER = "3600"  # seconds between claims, so each claim follows a hint


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


def test_an_agent_that_polls_hourly_gets_jobs_at_once_and_without_listener(tmp_path):
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


def test_a_job_goes_to_the_idle_worker_and_not_to_a_busier_one(tmp_path):
    # The idle worker counts also if it beats or claims late, because the machine is busy.
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://", LIVENESS_STALENESS_MULTIPLIER="100") as one:
        url = one.web(application="tests.support.patient_hints:application")
        token = one.token("client")

        def waiter_since(worker: str, job: dict[str, object], state: str) -> None:
            """Wait for the end of the job.

            After it, its worker waits for work again, behind all workers that already wait.
            """
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


def test_jobs_submitted_at_once_are_shared_among_idle_workers(tmp_path):
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
        for _ in range(10):  # the share of a worker that is too slow goes to the other
            if workers_of_a_batch() == {"worker-1", "worker-2"}:
                return
        raise AssertionError("one worker had them all")


def test_a_web_server_that_ends_answers_waiting_agents_and_they_wait_at_the_next(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        port = int(url.rpartition(":")[2])
        began = time.monotonic()
        one.agent("worker-1", url, "--poll", NEVER)
        eventually(lambda: waiting_calls(one) == 1, why="the agent waits")
        one.processes["web"].send_signal(signal.SIGTERM)
        one.processes["web"].wait(60)
        assert time.monotonic() - began < WAIT, "it did not wait for the call"
        assert waiting_calls(one) == 0
        one.web("web-2", port=port)
        job = submitted(one, url)
        eventually(lambda: ended(one, url, job), why="the agent asked again")
