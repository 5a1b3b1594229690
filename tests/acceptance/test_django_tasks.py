"""Django's tasks on real processes: agents that were started with `--django` run them, and a killed one loses none."""

import json
import signal

import pytest

from tests.support.processes import Fleet, eventually, fleet

pytestmark = pytest.mark.acceptance

SETTINGS = "tests.support.project_settings"
IN_THE_PROJECT = f"""
import json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = {SETTINGS!r}
import django
django.setup()
from tests.support import project_tasks
task, what, *given = json.loads(sys.argv[1])
task = getattr(project_tasks, task)
result = task.enqueue(*given) if what == "enqueue" else task.get_result(*given)
print(json.dumps({{
    "id": result.id, "status": result.status, "attempts": result.attempts,
    "value": result.return_value if result.status == "SUCCESSFUL" else None,
    "errors": [[error.exception_class.__name__, error.traceback] for error in result.errors],
}}))
"""


def ask(fleet: Fleet, task: str, what: str, *given: object) -> dict:
    return json.loads(fleet.run("-c", IN_THE_PROJECT, json.dumps([task, what, *given])))


def ended(fleet: Fleet, task: str, id: str) -> dict:
    def state() -> str:
        with fleet.connected() as connection:
            [[state]] = connection.execute("select state from jobs_workerjob where id = %s", [id]).fetchall()
        return state if state in ("COMPLETED", "FAILED") else ""

    eventually(state, why=f"{task} has ended")
    return ask(fleet, task, "get_result", id)


def test_the_task_of_a_killed_worker_runs_again_and_records_the_loss(tmp_path):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        one.executor("executor", "--beat", "--scheduler", "celery.beat:Scheduler")
        for name in ("worker-1", "worker-2"):
            one.agent(name, url, "--django", SETTINGS)
        id = ask(one, "die_once", "enqueue", str(tmp_path))["id"]
        eventually((tmp_path / "attempt-1").exists, why="the task runs")
        with one.connected() as connection:
            [[holder]] = connection.execute(
                "select s.name from jobs_attempt a join liveness_server s on s.id = a.server_id where job_id = %s", [id]
            ).fetchall()
        one.processes[holder].send_signal(signal.SIGKILL)
        seen = ended(one, "die_once", id)
        assert (seen["status"], seen["attempts"]) == ("SUCCESSFUL", 2)
        assert seen["value"] == {"attempt": 2, "before": ["jobs.django_tasks.WorkerLost"]}
        [[error, why]] = seen["errors"]
        assert error == "WorkerLost" and holder in why

        failed = ended(one, "fail", ask(one, "fail", "enqueue", "none left")["id"])
        assert failed["status"] == "FAILED" and failed["errors"][0][0] == "OutOfStamps"

        waits = ask(one, "send", "enqueue", "a@example.com")["id"]
        one.agent("postman", url, "--django", SETTINGS, "--queues", "mail", "--allow", "handler")
        assert ended(one, "send", waits)["value"] == {"sent": "a@example.com"}


def test_with_async_many_coroutines_run_in_one_process_and_functions_run_beside_them(tmp_path):
    with fleet(tmp_path) as one:
        url = one.web()
        one.agent("worker", url, "--django", SETTINGS, "--concurrency", "1", "--async", "4")
        ids = [ask(one, "meet", "enqueue", str(tmp_path), number, 4)["id"] for number in range(3)]
        assert ended(one, "add", ask(one, "add", "enqueue", 2, 3)["id"])["value"] == 5
        ids.append(ask(one, "meet", "enqueue", str(tmp_path), 3, 4)["id"])
        values = [ended(one, "meet", id)["value"] for id in ids]
        assert len({pid for pid, _ in values}) == 1 and not any(has_users for _, has_users in values)
        failed = ended(one, "fail", ask(one, "fail", "enqueue", "none left")["id"])
        assert failed["errors"][0][0] == "OutOfStamps"
