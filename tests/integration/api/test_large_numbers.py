"""Whole numbers keep all their digits in every JSON input and output; no digit changes without an error."""

import json
import uuid

import orjson
import pytest
from rest_framework.exceptions import ParseError

from controlplane.core.json_bodies import has_long_number, read_foreign_json, read_json, write_json
from jobs.models import LateReport
from jobs.services import evaluations
from tests.support.executions import SCRIPT, step
from tests.support.forms import fields_of

pytestmark = pytest.mark.django_db

NUMBERS = {
    "largest of 64 bits": 2**63 - 1, "unsigned": 2**64 - 1, "one more": 2**64, "one less": -(2**63) - 1,
    "uuid": 2**128 - 1, "wei": 10**23 + 1, "many": int("9" * 300),
}  # fmt: skip
DEEP = {"list": [[{"n": 2**64 + 1}], 0.1, "1" * 40], **NUMBERS}


@pytest.mark.parametrize("number", [*NUMBERS.values(), 12345678901234567, 1.5, 1e300, 5e-324, -0.0, 1e22])
def test_a_number_is_written_and_read_as_it_is(number):
    for read in (read_json, read_foreign_json):
        assert read(write_json({"n": [number]})) == {"n": [number]}
    assert json.loads(write_json([number])) == [number]


@pytest.mark.parametrize("text", ["0.1234567890123456789", "123456789012345678.5", "1.00000000000000000001e5"])
def test_a_fraction_that_a_float_would_change_is_a_400(submit, text):
    body = b'{"action": {"type": "script", "command": "true"}, "payload": [%s]}' % text.encode()
    answer = submit.client.post("/jobs", body)
    assert answer.status_code == 400 and text in answer.json()["detail"] and "text" in answer.json()["detail"]


@pytest.mark.parametrize(
    "text", ["0.12345678901234567", "1.50000000000000000000", "0.1000000000000000055511151231257827"]
)
def test_a_fraction_that_a_float_keeps_is_taken_and_of_a_server_any(submit, worker, text):
    body = b'{"action": {"type": "script", "command": "true"}, "payload": [%s]}' % text.encode()
    is_exact = len(text) < 30
    assert submit.client.post("/jobs", body).status_code == (201 if is_exact else 400)
    one = worker()
    assert one.post(f"/servers/{one.id}/heartbeat", b'{"metrics": {"load": %s}}' % text.encode()).status_code == 200


def test_a_body_with_long_numbers_is_judged_as_strictly_as_any_other(submit):
    long = "1" * 30
    for wrong in (f'["\\ud800", {long}]', f"[NaN, {long}]", f"[Infinity, {long}]", f"[1e999, {long}]", f"[{'1' * 400}]",
                  f'["\\u0000", {long}]', "[" * 200 + long + "]" * 200, f"{long},"):  # fmt: skip
        body = b'{"action": {"type": "script", "command": "true"}, "payload": %s}' % wrong.encode()
        assert submit.client.post("/jobs", body).status_code == 400, wrong
        with pytest.raises((orjson.JSONDecodeError, ParseError)):
            read_foreign_json(wrong)


@pytest.mark.parametrize(
    ("text", "is_long"), [("1" * 18, False), ("1" * 19, True), ("0." + "1" * 17, True), ("", False)]
)
def test_only_a_number_of_many_digits_is_read_the_slow_way(text, is_long):
    assert has_long_number(text.encode()) is is_long


def test_a_job_keeps_its_numbers_from_the_submission_to_its_worker_and_back(submit, worker):
    job = submit(payload=DEEP)
    assert job["payload"] == DEEP
    [again] = submit.client.post("/jobs", [{"action": SCRIPT, "payload": DEEP}]).json()["items"]
    assert again["payload"] == DEEP
    one = worker()
    first, _ = one.claim(limit=2, request_id=str(uuid.uuid4()))
    assert first["job"]["payload"] == DEEP
    one.start(first)
    assert one.report({"attempt": first["id"], "event": "CHECKPOINT", "value": DEEP})[0]["accepted"]
    assert one.complete(first, DEEP)["accepted"]
    read = submit.client.get(f"/jobs/{first['job']['id']}").json()
    assert (read["payload"], read["checkpoint"], read["output"]) == (DEEP, DEEP, DEEP)
    assert all(item["payload"] == DEEP for item in submit.client.get("/jobs").json()["items"])


def test_a_checkpoint_reaches_the_next_attempt_with_its_numbers(submit, worker):
    submit(max_retries=1)
    one = worker()
    attempt = one.hold()
    one.report({"attempt": attempt["id"], "event": "CHECKPOINT", "value": DEEP})
    one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "X"}})
    assert one.hold()["job"]["checkpoint"] == DEEP


def test_the_same_key_with_another_large_number_is_a_conflict(submit):
    first = submit(key="k", payload={"n": 10**30})
    assert submit(key="k", payload={"n": 10**30})["id"] == first["id"]
    other = {"action": SCRIPT, "key": "k", "payload": {"n": 10**30 + 1}}
    assert submit.client.post("/jobs", other).status_code == 409


def test_the_same_end_with_another_large_number_is_a_conflict_and_is_kept(submit, worker):
    submit()
    one = worker()
    attempt = one.hold()
    assert one.complete(attempt, {"n": 10**30, "f": 1e23, "whole": 1.0})["accepted"]
    assert one.complete(attempt, {"n": 10**30, "f": 1e23, "whole": 1})["replayed"]
    assert one.complete(attempt, {"n": 10**30 + 1, "f": 1e23, "whole": 1})["code"] == "conflicting_report"
    assert LateReport.objects.get().body["output"]["n"] == 10**30 + 1


def test_steps_children_and_their_outputs_keep_their_numbers(begin, do):
    child = {"type": "execution", "name": "c", "steps": [step("x", payload=DEEP)]}
    run = begin(step("own", payload=DEEP), step("inherits"), step("child", action=child), inputs=DEEP)
    assert run.read()["inputs"] == DEEP
    attempts = do.crew.claim(limit=10)
    assert [attempt["job"]["payload"] for attempt in attempts] == [DEEP] * 3
    for attempt in attempts:
        do.crew.start(attempt)
        assert do.crew.complete(attempt, DEEP)["accepted"]
    assert run.state == "COMPLETED"
    assert all(row["output"] == DEEP for row in run.read()["steps"] if row["key"] != "child")


@pytest.mark.parametrize("as_text", [True, False])
def test_a_trigger_and_what_it_starts_keep_their_numbers(api, worker, as_text):
    operator = api("operator")
    template = {"name": "e", "steps": [step("a", payload=DEEP)], "inputs": DEEP}
    body = {"name": "t", "interval_seconds": 3600, "action": SCRIPT, "payload": DEEP, "execution": template}
    trigger = operator.post("/triggers", body).json()
    assert (trigger["payload"], trigger["execution"]["inputs"]) == (DEEP, DEEP)
    assert operator.post(f"/triggers/{trigger['id']}/evaluate", {}).status_code == 201
    one = worker()
    attempt = one.hold()
    assert {name: attempt["job"]["payload"][name] for name in DEEP} == DEEP
    answer = {"fire": True, "inputs": {"n": 10**30 + 1}}
    one.complete(attempt, {"exit_code": 0, "stdout": json.dumps(answer)} if as_text else answer)
    evaluations.evaluate_due_triggers()
    [execution] = operator.get("/executions").json()["items"]
    assert operator.get(f"/executions/{execution['id']}").json()["inputs"] == {"n": 10**30 + 1}


def test_a_server_reports_numbers_of_any_size(api, worker):
    one = worker(capabilities={"id": 2**70})
    for beat in ({}, {"claimed": []}):  # first by the shortcut, then by the normal path
        assert one.beat(metrics={"bytes": 2**70 + len(beat)}, **beat).status_code == 200
        assert api("viewer").get(f"/servers/{one.id}").json()["metrics"] == {"bytes": 2**70 + len(beat)}


def test_a_celery_task_keeps_the_numbers_of_its_arguments(submit):
    action = {"type": "celery", "task": "t", "args": [2**70], "kwargs": {"n": 10**40 + 1}}
    assert (
        submit(action=action, unmatched="wait")["action"] | action == submit(action=action, unmatched="wait")["action"]
    )


def test_pages_and_the_form_of_a_trigger_show_all_digits_and_take_them(admin_client, api, submit):
    job = submit(payload=DEEP)
    assert str(2**128 - 1) in admin_client.get(f"/admin/instance/jobs/{job['id']}/").content.decode()
    template = {"name": "e", "steps": [step("a")], "inputs": DEEP}
    body = {"name": "t", "interval_seconds": 3600, "action": SCRIPT, "payload": DEEP, "execution": template}
    trigger = api("operator").post("/triggers", body).json()
    address = f"/admin/instance/triggers/{trigger['id']}/"
    assert str(2**128 - 1) in admin_client.get(address).content.decode()
    fields = fields_of(admin_client.get(f"{address}edit/").content.decode())
    assert read_json(fields["payload"]) == DEEP
    answer = admin_client.post(f"{address}edit/", {**fields, "payload": json.dumps({"n": 10**50 + 1})})
    assert answer.status_code == 302, answer.content.decode()
    assert api("operator").get(f"/triggers/{trigger['id']}").json()["payload"] == {"n": 10**50 + 1}
