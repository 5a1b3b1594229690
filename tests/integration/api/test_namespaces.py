"""Namespaces: only workers of its namespace run a job, and a token sees only its namespace."""

import uuid

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from jobs.models import Execution, Trigger, WorkerJob
from jobs.selectors.jobs import jobs_with_attempts, jobs_with_flags
from jobs.services import hints
from jobs.sql import sql
from liveness.models import ApiToken, Server
from liveness.services import tokens
from tests.integration.races.test_hot_paths import run
from tests.support.celery_tasks import task
from tests.support.namespaces import SCRIPT, submit_as
from tests.support.plans import executed, plan_of_execution
from tests.support.queries import CapturedQueries


def claimed_by(worker):
    return [attempt["job"]["id"] for attempt in worker.claim(limit=10)]


def test_a_server_is_of_the_namespace_of_its_token(worker_of):
    assert Server.objects.get(pk=worker_of("red").id).namespace == "red"


def test_without_a_word_everything_is_of_the_namespace_default(worker, submit):
    assert Server.objects.get(pk=worker().id).namespace == "default"
    assert WorkerJob.objects.get(pk=submit()["id"]).namespace == "default"


def test_a_worker_gets_the_jobs_of_its_namespace_alone(worker_of, of):
    red, blue = worker_of("red", max_concurrent=9), worker_of("blue", max_concurrent=9)
    first, other = submit_as(of("red", "client")), submit_as(of("blue", "client"), priority=9)
    assert claimed_by(red) == [first["id"]]
    assert claimed_by(red) == []
    assert claimed_by(blue) == [other["id"]]


def test_a_retry_and_a_resubmission_stay_in_the_namespace(worker_of, of):
    client, red = of("red", "client"), worker_of("red", max_concurrent=9)
    job = submit_as(client)
    (attempt,) = red.claim()
    red.report({"attempt": attempt["id"], "event": "STARTED"})
    red.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "X", "message": "x"}})
    again = client.post(f"/jobs/{job['id']}/resubmit", {"note": "again"}).json()
    assert again["id"] != job["id"]
    assert claimed_by(worker_of("default")) == []
    assert claimed_by(red) == [again["id"]]


def test_steps_children_and_hooks_are_of_the_namespace_of_their_execution(of):
    child = {"type": "execution", "name": "child", "steps": [{"key": "c", "action": SCRIPT}]}
    steps = [{"key": "a", "action": child}, {"key": "b", "action": SCRIPT, "depends_on": ["a"]}]
    answer = of("red", "client").post(
        "/executions", {"name": "n", "steps": steps, "on_error": [{"key": "h", "action": SCRIPT}]}
    )
    assert answer.status_code == 201, answer.json()
    assert set(WorkerJob.objects.values_list("namespace", flat=True)) == {"red"}
    assert set(Execution.objects.values_list("namespace", flat=True)) == {"red"}
    assert (WorkerJob.objects.count(), Execution.objects.count()) == (4, 2)


def test_an_execution_runs_again_in_its_namespace(of, worker_of):
    client = of("red", "client")
    begun = client.post("/executions", {"name": "n", "steps": [{"key": "a", "action": SCRIPT}]}).json()
    assert client.post(f"/executions/{begun['id']}/cancel", {"note": "n"}).status_code == 200
    again = client.post(f"/executions/{begun['id']}/rerun", {"note": "n"})
    assert again.status_code == 201, again.json()
    assert Execution.objects.get(pk=again.json()["id"]).namespace == "red"


def test_what_a_trigger_makes_is_of_its_namespace(of, worker_of):
    fields = {"name": "t", "interval_seconds": 60, "action": SCRIPT}
    operator = of("red", "operator")
    made = operator.post("/triggers", {**fields, "execution": {"name": "n", "steps": [{"key": "a", "action": SCRIPT}]}})
    assert made.status_code == 201, made.json()
    assert Trigger.objects.get().namespace == "red"
    assert operator.post(f"/triggers/{made.json()['id']}/evaluate", {"note": "now"}).status_code == 201
    red = worker_of("red", max_concurrent=9)
    (attempt,) = red.claim()
    red.report({"attempt": attempt["id"], "event": "STARTED"})
    red.report({"attempt": attempt["id"], "event": "COMPLETED", "output": {"fire": True}})
    assert Execution.objects.get().namespace == "red"
    assert set(WorkerJob.objects.values_list("namespace", flat=True)) == {"red"}


def test_the_placement_of_a_job_names_no_server_of_another_namespace(worker_of, of):
    red, blue, client = worker_of("red"), worker_of("blue"), of("red", "client")
    placement = client.get(f"/jobs/{submit_as(client)['id']}/placement").json()
    assert [row["server"]["id"] for row in placement["eligible"]] == [str(red.id)]
    assert str(blue.id) not in str(placement)


def test_a_worker_of_another_namespace_is_none_where_one_is_required(worker_of, of):
    worker_of("blue")
    refused = of("red", "client").post("/jobs", {"action": SCRIPT, "require_worker": True})
    assert (refused.status_code, refused.json()["filter"]) == (503, "freshness")
    assert submit_as(of("blue", "client"), require_worker=True)


def test_a_job_that_only_workers_of_another_namespace_could_run_stands_still(worker_of, of):
    worker_of("blue")
    waiting = submit_as(of("red", "client"), unmatched="wait")
    submit_as(of("blue", "client"), unmatched="wait")
    viewer = of("red", "viewer")
    assert viewer.get(f"/jobs/{waiting['id']}").json()["flags"] == ["waits_for_tags"]
    flagged = [str(job.pk) for job in jobs_with_flags(jobs_with_attempts()) if job.flags]
    assert flagged == [waiting["id"]]


def test_a_hint_is_for_workers_of_the_namespace(worker_of, of):
    red, blue = worker_of("red"), worker_of("blue")
    submit_as(of("red", "client"))
    assert [(row.namespace, row.tags) for row in hints.list_claimable_jobs(5, [("red", ["script"])])] == [
        ("red", ["script"])
    ]
    assert red.get(f"/servers/{red.id}/hints?wait=0").json() == {"work": True}
    assert blue.get(f"/servers/{blue.id}/hints?wait=0").json() == {"work": False}


def test_a_job_that_is_an_execution_and_never_began_is_found_in_any_namespace(of):
    for namespace in ("blue", "default", "red"):
        token = of(namespace, "client").token
        owner = ApiToken.objects.get(digest=tokens.digest_token(token))
        # As if the process had died that was to begin it.
        WorkerJob.objects.create(
            owner=owner, namespace=namespace, fingerprint=b"", action={"type": "execution"}, required_tags=[""]
        )
    submit_as(of("red", "client"))
    found = sql.find_stalled_jobs.fetch_rows(after=uuid.UUID(int=0), batch=10)
    assert {WorkerJob.objects.get(pk=row.id).namespace for row in found} == {"blue", "default", "red"}


def test_the_task_of_a_celery_worker_is_of_its_namespace(of, celery_worker):
    one = celery_worker("one", of("red", "worker"))
    one.say(task(state="HELD"))
    assert WorkerJob.objects.get().namespace == "red"


def test_a_claim_walks_over_no_job_of_another_namespace(worker_of, of):
    wanted = submit_as(of("red", "client"))
    owner = ApiToken.objects.get(namespace="red", role="client")
    # The worker asks for none of their sets of tags.
    run(
        """
        insert into jobs_workerjob (owner_id, fingerprint, action, required_tags, priority, namespace)
        select %s, 'x', '{"type": "script", "command": "true", "runner": "local"}', array['script', 't' || n %% 20], 5,
               'other' || n %% 5
          from generate_series(1, 10000) as n
        """,
        [owner.pk],
    )
    red = worker_of("red", tags=["script", *(f"t{n}" for n in range(20))])
    run("analyze jobs_workerjob")
    with CapturedQueries(connection) as queries:
        assert claimed_by(red) == [wanted["id"]]
    claim = executed(queries, "claim_jobs")
    submit_as(of("red", "client"))
    plan = plan_of_execution(claim)
    reads = [node for node in plan if node.get("Relation Name") == "jobs_workerjob"]
    reads = [node for node in reads if node["Node Type"] != "ModifyTable"]
    assert "job_to_claim" in {node.get("Index Name") for node in reads}
    read = [node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) for node in reads]
    assert sum(read) < 20


def test_a_token_of_a_namespace_is_made_on_the_command_line(db, capsys):
    call_command("create_token", "ours", role="client", namespace="red")
    assert ApiToken.objects.get(name="ours").namespace == "red"
    capsys.readouterr()


@pytest.mark.parametrize("name", ["", " ", "two\nlines"])
def test_no_token_is_made_of_what_is_no_name(name):
    with pytest.raises(CommandError):
        call_command("create_token", "ours", "--role", "client", "--namespace", name)
