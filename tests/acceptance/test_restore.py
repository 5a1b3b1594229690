"""Rehearsal of a backup: dump while a job runs, restore elsewhere, and the job continues there."""

import os
import signal
import subprocess

import pytest

from controlplane.embedded.postgres_binaries import find_programs
from tests.support.processes import Fleet, beside, drop, eventually, fleet, server

pytestmark = pytest.mark.acceptance

PROGRAMS = find_programs(None)


def run(program: str, *words: str) -> None:
    done = subprocess.run([PROGRAMS / program, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def begin(one: Fleet) -> str:
    url = one.web()
    one.executor("executor", "--beat", "--scheduler", "celery.beat:Scheduler")
    one.agent("worker", url)
    return f"{url}/api/v1"


def test_a_job_that_ran_during_the_backup_continues_after_the_restore(tmp_path):
    dump, began, restored = tmp_path / "backup", tmp_path / "began", f"restored_{os.getpid()}"
    folders = [tmp_path / "before", tmp_path / "after"]
    for folder in folders:
        folder.mkdir()
    own = {"CELERY_BROKER_URL": "filesystem://", "SECRET_KEY": "the key of the backup " * 3}
    with fleet(folders[0], **own) as one:
        api = begin(one)
        client = one.token("client")
        script = f'if [ -e "{began}" ]; then echo "try $JOB_ATTEMPT"; else touch "{began}"; sleep 600; fi'
        job = one.call("POST", f"{api}/jobs", client, {"action": {"type": "script", "command": script}})["id"]
        eventually(began.exists, why="the job's code runs")
        run("pg_dump", "--format=custom", f"--file={dump}", one.env["DATABASE_URL"])
        # Later changes are not in the backup.
        one.call("POST", f"{api}/jobs", client, {"action": {"type": "script", "command": "true"}})
        one.processes["worker"].send_signal(signal.SIGKILL)

    server(f"create database {restored}")
    try:
        run("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={beside(restored)}", str(dump))
        with fleet(folders[1], DATABASE_URL=beside(restored), **own) as one:
            told = one.run("manage.py", "after_restore", "--note", "the machine burnt down")
            assert "RESUBMITTED: 1" in told.splitlines()
            api = begin(one)

            def seen():
                return one.call("GET", f"{api}/jobs/{job}", client)

            done = eventually(lambda: (now := seen())["state"] == "COMPLETED" and now, why="it completes")
            assert [attempt["state"] for attempt in done["attempts"]] == ["RESUBMITTED", "COMPLETED"]
            assert done["output"]["stdout"].strip() == "try 2"
            assert len(one.call("GET", f"{api}/jobs", client)["items"]) == 1
            servers = one.call("GET", f"{api}/servers", one.token("operator"))["items"]
            assert sum(server["state"] == "RUNNING" for server in servers if server["name"] == "worker") == 1
    finally:
        drop(beside(restored))
