"""Django's tasks on real processes: agents that were started with `--django` run them, and a killed one loses none."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.processes import ROOT, Fleet, eventually, fleet

pytestmark = pytest.mark.acceptance

SETTINGS = "tests.support.project_settings"
IN_THE_PROJECT = f"""
import json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = {SETTINGS!r}
import django
django.setup()
from tests.support import project_tasks
for line in sys.stdin:
    task, what, *given = json.loads(line)
    task = getattr(project_tasks, task)
    result = task.enqueue(*given) if what == "enqueue" else task.get_result(*given)
    print(json.dumps({{
        "id": result.id, "status": result.status, "attempts": result.attempts,
        "value": result.return_value if result.status == "SUCCESSFUL" else None,
        "errors": [[error.exception_class.__name__, error.traceback] for error in result.errors],
    }}), flush=True)
"""
Ask = Callable[..., dict[str, Any]]


@contextmanager
def project(fleet: Fleet) -> Iterator[Ask]:
    """Start one process of the project that enqueues tasks and reads their results."""
    with subprocess.Popen(
        [fleet.python, "-c", IN_THE_PROJECT], env=fleet.env, cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip

        def ask(task: str, what: str, *given: object) -> dict[str, Any]:
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps([task, what, *given]) + "\n")
            process.stdin.flush()
            return dict(json.loads(process.stdout.readline()))

        yield ask


def ended(fleet: Fleet, ask: Ask, task: str, id: str) -> dict[str, Any]:
    def state() -> str:
        with fleet.connected() as connection:
            [[state]] = connection.execute("select state from jobs_workerjob where id = %s", [id]).fetchall()
        return state if state in ("COMPLETED", "FAILED") else ""

    eventually(state, why=f"{task} has ended")
    return ask(task, "get_result", id)


def test_the_task_of_a_killed_worker_runs_again_and_records_the_loss(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one, project(one) as ask:
        url = one.web()
        one.executor("executor", "--beat", "--scheduler", "celery.beat:Scheduler")
        for name in ("worker-1", "worker-2"):
            one.agent(name, url, "--django", SETTINGS)
        id = ask("die_once", "enqueue", str(tmp_path))["id"]
        eventually((tmp_path / "attempt-1").exists, why="the task runs")
        with one.connected() as connection:
            [[holder]] = connection.execute(
                "select s.name from jobs_attempt a join liveness_server s on s.id = a.server_id where job_id = %s", [id]
            ).fetchall()
        one.processes[holder].send_signal(signal.SIGKILL)
        seen = ended(one, ask, "die_once", id)
        assert (seen["status"], seen["attempts"]) == ("SUCCESSFUL", 2)
        assert seen["value"] == {"attempt": 2, "before": ["jobs.django_tasks.WorkerLost"]}
        [[error, why]] = seen["errors"]
        assert error == "WorkerLost" and holder in why

        failed = ended(one, ask, "fail", ask("fail", "enqueue", "none left")["id"])
        assert failed["status"] == "FAILED" and failed["errors"][0][0] == "OutOfStamps"

        waits = ask("send", "enqueue", "a@example.com")["id"]
        one.agent("postman", url, "--django", SETTINGS, "--queues", "mail", "--allow", "handler")
        assert ended(one, ask, "send", waits)["value"] == {"sent": "a@example.com"}


def test_with_async_many_coroutines_run_in_one_process_and_functions_run_beside_them(tmp_path):
    with fleet(tmp_path) as one, project(one) as ask:
        url = one.web()
        one.agent("worker", url, "--django", SETTINGS, "--concurrency", "1", "--async", "4")
        ids = [ask("meet", "enqueue", str(tmp_path), number, 4)["id"] for number in range(3)]
        assert ended(one, ask, "add", ask("add", "enqueue", 2, 3)["id"])["value"] == 5
        ids.append(ask("meet", "enqueue", str(tmp_path), 3, 4)["id"])
        values = [ended(one, ask, "meet", id)["value"] for id in ids]
        assert len({pid for pid, _ in values}) == 1 and not any(has_users for _, has_users in values)
        failed = ended(one, ask, "fail", ask("fail", "enqueue", "none left")["id"])
        assert failed["errors"][0][0] == "OutOfStamps"
