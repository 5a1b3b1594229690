"""Sizes of requests and responses are limited, and refusals contain the limit."""

import uuid

import pytest
from django.db.models import Model

from controlplane.core import paging
from controlplane.core.json_bodies import size_of
from jobs.models import Execution, Trigger, WorkerJob
from jobs.selectors.contents import LARGE
from jobs.services import claiming
from jobs.services.execution_rows import PAYLOAD_BYTES_LIMIT
from jobs.services.heartbeats import LISTED_LIMIT
from liveness.models import Server
from tests.integration.api.test_bad_input import SCRIPT, assert_problem, stored
from tests.support.executions import step

pytestmark = pytest.mark.django_db


def sized(size):
    return {"a": "x" * (size - size_of({"a": ""}))}


@pytest.mark.parametrize("metrics", [sized(8193), {f"a{n}": 1.5e300 for n in range(100)} | {"a0": "x" * 8000}])
def test_metrics_have_eight_kibibytes_on_both_ways(worker, metrics):
    one = worker()
    for more in {}, {"claimed": []}:
        assert one.beat(metrics=sized(8192), **more).status_code == 200
        before = stored()
        problem = assert_problem(one.beat(metrics=metrics, **more), 400, "invalid")
        assert "the limit is 8192" in problem["errors"]["metrics"][0]
        assert stored() == before


def test_figures_that_are_longer_when_written_again_go_the_long_way(worker):
    one, figures = worker(), {"x" * 78 + str(n).zfill(2): 1e15 for n in range(100)}  # 1e15 is stored with 17 digits
    body = b'{"metrics": {%s}}' % b",".join(b'"%s":1e15' % name.encode() for name in figures)
    assert len(body) < size_of(figures) and size_of(figures) > 8192 > len(body) - 1000
    answer = one.post(f"/servers/{one.id}/heartbeat", body)
    assert "metrics" in assert_problem(answer, 400, "invalid")["errors"]


def test_capabilities_have_sixteen_kibibytes(api):
    registrar, registration = api("worker"), {"type": "WORKER", "name": "one"}
    before = stored()
    for size, status in (16385, 400), (16384, 201):
        answer = registrar.post(
            "/servers", {**registration, "instance_id": str(uuid.uuid4()), "capabilities": sized(size)}
        )
        assert answer.status_code == status
        if status == 400:
            assert "the limit is 16384" in assert_problem(answer)["errors"]["capabilities"][0]
            assert stored() == before


def ids(count):
    return [str(uuid.UUID(int=number)) for number in range(count)]


@pytest.mark.parametrize("slots", [0, 1, 500])
def test_a_heartbeat_lists_a_thousand_attempts_whatever_its_slots(worker, slots):
    one = worker(max_concurrent=slots)
    assert one.beat(claimed=ids(LISTED_LIMIT), stopped=ids(LISTED_LIMIT)).status_code == 200
    before = stored()
    for lists in ({"claimed": ids(LISTED_LIMIT + 1)}, {"stopped": ids(LISTED_LIMIT + 1)},
                  {"claimed": ids(1), "running": [{"attempt": id} for id in ids(LISTED_LIMIT)]}):  # fmt: skip
        problem = assert_problem(one.beat(**lists), 400, "too_many_attempts")
        assert f"with {slots} slots lists at most 1000" in problem["detail"]
    assert stored() == before


def test_who_has_more_slots_lists_twice_as_many(worker):
    one = worker(max_concurrent=600)
    assert one.beat(claimed=ids(1200)).status_code == 200
    assert_problem(one.beat(claimed=ids(1201)), 400, "too_many_attempts")


def test_a_long_heartbeat_of_an_unknown_server_is_refused_as_unknown(worker):
    one = worker()
    Server.objects.all().delete()
    assert one.beat(claimed=ids(LISTED_LIMIT + 1)).status_code == 410


def test_many_jobs_in_one_call_multiply_no_further_than_one(submitter):
    steps = [step(str(n)) for n in range(100)]
    job = {"action": {"type": "execution", "name": "e", "steps": steps}, "payload": sized(PAYLOAD_BYTES_LIMIT // 390)}
    assert submitter.post("/jobs", [job] * 3).status_code == 201
    before = WorkerJob.objects.count(), Execution.objects.count()
    problem = assert_problem(submitter.post("/jobs", [job] * 4), 400, "invalid")
    assert f"at most {PAYLOAD_BYTES_LIMIT}" in str(problem["errors"])
    assert (WorkerJob.objects.count(), Execution.objects.count()) == before


def test_children_in_children_multiply_no_further(submitter):
    inner = [step("a", payload="x" * 500_000)]
    for _ in range(10):
        inner = [{"key": "a", "action": {"type": "execution", "name": "e", "steps": inner}, "payload": {}}]
    problem = assert_problem(submitter.post("/executions", {"name": "e", "steps": inner}), 400, "invalid")
    assert f"at most {PAYLOAD_BYTES_LIMIT}" in problem["errors"]["inputs"][0]


def test_a_trigger_is_not_made_of_what_could_never_begin(api):
    execution = {"name": "e", "steps": [step(str(n)) for n in range(100)], "inputs": sized(PAYLOAD_BYTES_LIMIT // 90)}
    body = {"name": "t", "interval_seconds": 60, "action": SCRIPT, "execution": execution}
    assert "inputs" in assert_problem(api("operator").post("/triggers", body), 400, "invalid")["errors"]["execution"]


def pages(caller, path):
    """Return the items of each page of a list, and the bytes of each page."""
    cursor, collected = "", []
    while cursor is not None:
        answer = caller.get(f"{path}limit=500{cursor and f'&cursor={cursor}'}")
        assert answer.status_code == 200, answer.json()
        collected.append((answer.json()["items"], len(answer.content)))
        cursor = answer.json()["next"]
    return collected


def test_a_list_leaves_large_fields_out_and_a_single_job_has_them(worker, submit):
    action = {"type": "script", "runner": "local", "command": "x" * LARGE}
    submit(payload="x" * (LARGE - 2))
    job = submit(payload="x" * LARGE, action=action, priority=1)
    one = worker()
    assert one.complete(one.hold(), "y" * LARGE)["accepted"]
    submit.client.post(f"/jobs/{submit()['id']}/fail", {"reason": "z" * 1000})
    (failed, large, small), _ = pages(submit.client, "/jobs?")[0]
    assert large["left_out"] == ["action", "payload", "output"]
    assert (large["action"], large["payload"], large["output"]) == ({"type": "script"}, None, None)
    alone = submit.client.get(f"/jobs/{job['id']}").json()
    assert (alone["left_out"], alone["payload"], alone["output"]) == ([], "x" * LARGE, "y" * LARGE)
    assert alone["action"] == action
    assert [(job["left_out"], job["payload"]) for job in (failed, small)] == [([], None), ([], "x" * (LARGE - 2))]


def test_a_large_error_has_its_code_in_a_list(worker, submit):
    submit()
    one = worker()
    error = {"code": "ValueError", "message": "x" * LARGE}
    assert one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": error})[0]["accepted"]
    [job], _ = pages(submit.client, "/jobs?")[0]
    assert (job["left_out"], job["error"]) == (["error"], {"code": "ValueError"})
    assert job["timeline"][-1]["reason"] == "ValueError"
    assert job["attempts"][0]["error"]["message"] == "x" * LARGE


def test_of_many_attempts_the_last_have_their_errors_whole(worker, submit, monkeypatch):
    job = submit(max_retries=20)
    one = worker()
    for number in range(20):
        error = {"code": f"E{number}", "message": "x" * 250_000}
        assert one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": error})[0]["accepted"]
    attempts = submit.client.get(f"/jobs/{job['id']}").json()["attempts"]
    assert [attempt["left_out"] for attempt in attempts] == [["error"]] * 4 + [[]] * 16
    assert attempts[0]["error"] == {"code": "E0"}
    assert all(len(attempt["error"]["message"]) == 250_000 for attempt in attempts[4:])


@pytest.fixture
def small_answers(monkeypatch):
    monkeypatch.setattr(paging, "ANSWER_LIMIT", 10_000)


@pytest.mark.parametrize("listed", ["jobs", "logs", "servers", "executions", "triggers"])
def test_a_page_stops_at_its_size_limit_and_continues_at_next(api, submit, worker, begin, small_answers, listed):
    operator, path, count = api("operator"), f"/{listed}?", 12
    match listed:
        case "jobs":
            expected = [submit(payload="x" * 3000)["id"] for _ in range(count)][::-1]
        case "logs":
            path = f"/jobs/{submit()['id']}/logs?"
            one = worker()
            lines = [f"{n} " + "x" * 3000 for n in range(count)]
            one.report({"attempt": one.hold()["id"], "event": "LOG", "stream": "STDOUT", "lines": lines})
            expected = lines
        case "servers":
            metrics = {"x" * 3000: 1}
            workers = [worker(name=f"worker-{n}") for n in range(count)]
            assert {one.beat(metrics=metrics).status_code for one in workers} == {200}
            expected = [one.id for one in workers][::-1]
        case "executions":
            expected = [begin(step("a")).id for n in range(3 * count)][::-1]
        case "triggers":
            execution = {"name": "e", "steps": [step("a", payload="x" * 3000)]}
            fields = {"interval_seconds": 3600, "action": SCRIPT, "execution": execution}
            answers = [operator.post("/triggers", {**fields, "name": str(n)}) for n in range(count)]
            expected = [answer.json()["id"] for answer in answers][::-1]
    shown = pages(operator, path)
    key = "line" if listed == "logs" else "id"
    assert [item[key] for items, _ in shown for item in items] == expected
    assert len(shown) > 1 and all(size < 10_100 for _, size in shown)


@pytest.mark.parametrize("listed", ["executions", "triggers"])
def test_a_list_reads_no_more_from_the_database_than_it_answers(api, begin, small_answers, monkeypatch, listed):
    model = {"executions": Execution, "triggers": Trigger}[listed]
    operator = api("operator")
    for n in range(12):
        large = {"name": str(n), "steps": [step("a", payload="x" * 3000)], "inputs": {"x": "x" * 3000}}
        if listed == "executions":
            begin(*large["steps"], inputs=large["inputs"])
        else:
            fields = {"interval_seconds": 3600, "action": SCRIPT, "execution": large}
            assert operator.post("/triggers", {**fields, "name": str(n)}).status_code == 201
    read = []

    def from_db(cls, db, field_names, values):
        read.append(sum(len(str(value)) for value in values))
        return Model.from_db.__func__(cls, db, field_names, values)

    monkeypatch.setattr(model, "from_db", classmethod(from_db))
    assert operator.get(f"/{listed}").status_code == 200
    assert read and sum(read) < 2 * paging.ANSWER_LIMIT


def test_an_item_that_alone_is_too_much_is_a_page(submit, small_answers):
    jobs = [submit(payload="x" * 15_000)["id"] for _ in range(3)]
    assert [[job["id"] for job in items] for items, _ in pages(submit.client, "/jobs?")] == [[id] for id in jobs[::-1]]


def test_the_first_steps_have_outputs_and_the_others_mark_them_as_left_out(begin, do, submitter):
    run = begin(*(step(str(n)) for n in range(20)), step("last"))
    for n in range(20):
        do(str(n), output="x" * 250_000)
    steps = run.read()["steps"]
    assert [one["left_out"] for one in steps] == [[]] * 16 + [["output"]] * 4 + [[]]
    assert [one["output"] is None for one in steps] == [False] * 16 + [True] * 5
    assert submitter.get(f"/jobs/{steps[19]['job']}").json()["output"] == "x" * 250_000


def test_a_claim_brings_as_many_jobs_as_one_answer_holds_and_the_next_the_others(worker, submit, monkeypatch):
    monkeypatch.setattr(claiming, "ANSWER_LIMIT", 10_000)
    jobs = [submit(payload="x" * size)["id"] for size in (20_000, 10, 4000, 5000, 6000, 10)]
    one, taken = worker(), []
    while claimed := one.claim(limit=10):
        taken.append([attempt["job"]["id"] for attempt in claimed])
    assert taken == [jobs[:1], jobs[1:5], jobs[5:]]
