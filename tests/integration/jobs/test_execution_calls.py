"""Refusals, responses and repetitions of the calls about executions."""

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.services import sweep
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([step("a", "b"), step("b", "a")], ["'a'", "'b'"]),
        ([step("a", "a")], ["'a'"]),
        ([step("a", "ghost")], ["'a'", "'ghost'"]),
        ([step("a"), step("a")], ["a"]),
        ([], []),
        ([step("_server")], ["_server"]),
        ([step("a/b")], []),
        ([step("a", action={"type": "ghost"})], ["execution"]),
        ([step("a", colour="red")], ["colour"]),
        ([step("a", require_worker=True)], ["require_worker"]),
        ([step("c", action={"type": "execution", "name": "x", "steps": [step("a", "a")]})], ["'a'"]),
        ([step("c", timeout_seconds=5, action={"type": "execution", "name": "x", "steps": [step("a")]})], ["action"]),
    ],
)
def test_a_graph_that_cannot_run_is_refused_with_its_steps_named(submitter, steps, names):
    answer = submitter.post("/executions", {"name": "bad", "steps": steps})
    assert answer.status_code == 400
    assert all(name in str(answer.json()["errors"]) for name in names), answer.json()
    assert submitter.get("/executions").json()["items"] == []


def test_ten_thousand_steps_are_taken_and_one_more_is_not(submitter):
    few = {"action": {"type": "script", "command": "x"}}
    steps = [{"key": str(n), **few} for n in range(10_001)]
    answer = submitter.post("/executions", {"name": "big", "steps": steps})
    assert answer.status_code == 400
    assert "There are 10001 steps, but at most 10000 are allowed." in str(answer.json())
    assert submitter.post("/executions", {"name": "big", "steps": steps[1:]}).status_code == 201


def test_a_hook_is_no_execution_and_depends_on_nothing(submitter):
    for fields in ({"action": {"type": "execution", "name": "x", "steps": [step("a")]}}, {"depends_on": ["a"]}):
        hook = {"key": "tell", "action": SCRIPT, **fields}
        answer = submitter.post("/executions", {"name": "bad", "steps": [step("a")], "on_error": [hook]})
        assert answer.status_code == 400


def test_the_same_key_is_the_same_execution_and_with_other_content_a_conflict(submitter):
    body = {"name": "once", "steps": [step("a")], "key": "k"}
    first, again = submitter.post("/executions", body), submitter.post("/executions", body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = submitter.post("/executions", {**body, "name": "twice"})
    assert (other.status_code, other.json()["code"]) == (409, "key_conflict")
    header = submitter.post("/executions", {"name": "once", "steps": [step("a")]}, **{"Idempotency-Key": "k"})
    assert header.json()["id"] == first.json()["id"]


def test_an_execution_that_needs_a_worker_and_finds_none_is_refused(submitter, worker):
    body = {"name": "now", "steps": [step("a"), step("b", "a", tags=["gpu"])], "require_worker": True}
    worker()
    answer = submitter.post("/executions", body)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_fresh_workers")
    assert answer.json()["required_tags"] == ["gpu", "script"]
    assert submitter.get("/executions").json()["items"] == []
    worker(tags=["script", "gpu"])
    assert submitter.post("/executions", body).status_code == 201


@pytest.mark.parametrize("where", ["steps", "on_error"])
def test_a_worker_is_required_for_the_steps_of_children_too(submitter, worker, where):
    needy = {"key": "rare", "action": SCRIPT, "tags": ["gpu"]}
    plain = {"key": "a", "action": SCRIPT}
    parts = {"steps": [plain, needy]} if where == "steps" else {"steps": [plain], "on_error": [needy]}
    inner = {"type": "execution", "name": "inner", **parts}
    outer = {"type": "execution", "name": "outer", "steps": [step("inner", action=inner)]}
    body = {"name": "now", "steps": [step("a"), step("child", "a", action=outer)], "require_worker": True}
    assert submitter.post("/executions", body).json()["code"] == "no_fresh_workers"
    worker()
    answer = submitter.post("/executions", body)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_fresh_workers")
    assert submitter.get("/executions").json()["items"] == []
    worker(tags=["script", "gpu"])
    assert submitter.post("/executions", body).status_code == 201


def test_another_clients_execution_is_not_found(begin, api):
    run = begin(step("a"))
    other = api("client")
    for path in (f"/executions/{run.id}", f"/executions/{run.id}/steps/a/logs"):
        assert other.get(path).status_code == 404
    for verb in ("cancel", "rerun"):
        assert other.post(f"/executions/{run.id}/{verb}", {}).status_code == 404
    assert other.get("/executions").json()["items"] == []
    assert api("operator").get(f"/executions/{run.id}").status_code == 200
    assert api("viewer").post(f"/executions/{run.id}/cancel", {}).status_code == 403


def test_what_is_not_there_is_a_404(submitter, begin):
    run = begin(step("a"))
    for path in (f"/executions/{uuid.uuid4()}", f"/executions/{run.id}/steps/ghost/logs"):
        assert submitter.get(path).status_code == 404


def test_the_servers_own_lines_come_in_pages_and_as_json_lines(begin, do, submitter):
    run = begin(step("a"), *[step(f"s{n}", "a") for n in range(5)])
    do("a", fails=True)
    path = f"/executions/{run.id}/steps/_server/logs"
    first = submitter.get(f"{path}?limit=3").json()
    rest = submitter.get(f"{path}?limit=3&cursor={first['next']}").json()
    assert [len(page["items"]) for page in (first, rest)] == [3, 2]
    assert rest["next"] is None
    behind = submitter.get(f"{path}?cursor={rest['last']}").json()
    assert behind == {"items": [], "next": None, "last": rest["last"]}
    lines = submitter.get(path, Accept="application/x-ndjson").content.splitlines()
    assert len(lines) == 5


def test_the_lines_of_a_step_are_read_by_its_key(begin, do, submitter):
    run = begin(step("a"))
    attempt = do.crew.hold()
    do.crew.report({"attempt": attempt["id"], "event": "LOG", "stream": "STDOUT", "lines": ["hello"]})
    items = submitter.get(f"/executions/{run.id}/steps/a/logs").json()["items"]
    assert [item["line"] for item in items] == ["hello"]


def test_a_rerun_with_a_key_is_one_however_often_it_is_asked_for(begin, do, submitter):
    run, other = begin(step("a")), begin(step("b"))
    do("a", "b")
    key = {"Idempotency-Key": "again"}
    first = submitter.post(f"/executions/{run.id}/rerun", {}, **key)
    second = submitter.post(f"/executions/{run.id}/rerun", {}, **key)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    taken = submitter.post(f"/executions/{other.id}/rerun", {}, **key)
    assert (taken.status_code, taken.json()["code"]) == (409, "key_conflict")


def test_a_rerun_does_not_expire_by_a_moment_that_has_passed(begin, do, submitter, clock):
    soon = (timezone.now() + timedelta(hours=1)).isoformat()
    run = begin(step("a", good_until=soon), step("b", good_until="2000-01-01T00:00:00Z"))
    sweep.run_sweep()
    do("a")
    assert run.state == "FAILED"
    again = submitter.post(f"/executions/{run.id}/rerun", {}).json()
    sweep.run_sweep()
    execution = submitter.get(f"/executions/{again['id']}").json()
    assert [step["state"] for step in execution["steps"]] == ["PENDING", "PENDING"]
