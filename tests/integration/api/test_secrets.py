"""Secrets in submissions. Named secrets come from the worker.

Marked values, and values with a secret's name, are masked.
"""

import json

import pytest
from django.template import Template
from django.test.utils import instrumented_test_render

from jobs.models import Trigger, WorkerJob
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db

NAMED = {"secret": "db-password"}
MARKED = {"secret_value": "CH93 0076"}
HIDDEN = ("hunter2", "CH93 0076")
ACTION = {**SCRIPT, "env": {"DB_PASSWORD": "hunter2", "IBAN": MARKED, "TOKEN": NAMED, "PLAIN": "p"}}
PAYLOAD = {"user": {"password": "hunter2", "iban": MARKED}, "key": NAMED, "max_tokens": 5}
SHOWN_ENV = {"DB_PASSWORD": "***", "IBAN": {"secret_value": "***"}, "TOKEN": NAMED, "PLAIN": "p"}
SHOWN_PAYLOAD = {"user": {"password": "***", "iban": {"secret_value": "***"}}, "key": NAMED, "max_tokens": 5}
TRIGGER = {
    "name": "nightly",
    "cron": "0 2 * * *",
    "action": ACTION,
    "payload": PAYLOAD,
    "execution": {"name": "n", "steps": [{"key": "a", "action": ACTION, "payload": PAYLOAD}], "inputs": PAYLOAD},
}


def is_shown(text):
    return any(word in text for word in HIDDEN)


def test_answers_mask_what_a_worker_is_given(submit, worker, api):
    job = submit(action=ACTION, payload=PAYLOAD)
    assert (job["action"]["env"], job["payload"]) == (SHOWN_ENV, SHOWN_PAYLOAD)
    operator = api("operator")
    for path in ("/jobs", f"/jobs/{job['id']}"):
        assert not is_shown(operator.get(path).content.decode())
    [attempt] = worker(tags=["script"]).claim()
    assert attempt["job"]["action"]["env"] == ACTION["env"]
    assert attempt["job"]["payload"] == PAYLOAD


def test_answers_of_an_execution_mask_steps_inputs_and_children(begin, worker, api):
    child = {"type": "execution", "name": "inner", "steps": [{"key": "x", "action": ACTION}]}
    run = begin(step("a", action=ACTION), step("b", action=child), inputs=PAYLOAD)
    answer = run.read()
    assert answer["inputs"] == SHOWN_PAYLOAD
    assert answer["steps"][0]["action"]["env"] == SHOWN_ENV
    operator = api("operator")
    for path in (f"/executions/{run.id}", "/executions", f"/jobs/{run.step('b')['job']}"):
        assert not is_shown(operator.get(path).content.decode())
    claimed = worker(tags=["script"], max_concurrent=9).claim(limit=9)
    assert {json.dumps(attempt["job"]["payload"], sort_keys=True) for attempt in claimed} == {
        json.dumps(PAYLOAD, sort_keys=True)
    }


def test_a_trigger_that_was_read_can_be_written_back_and_keeps_what_is_masked(api):
    calls = api("operator")
    made = calls.post("/triggers", TRIGGER)
    assert made.status_code == 201, made.json()
    stored = Trigger.objects.values("action", "payload", "execution").get()
    shown = made.json()
    assert not is_shown(json.dumps(shown))
    changed = calls.call(
        "PATCH",
        f"/triggers/{shown['id']}",
        {
            "action": {**shown["action"], "command": "date"},
            **{field: shown[field] for field in ("payload", "execution")},
        },
    )
    assert changed.status_code == 200, changed.json()
    assert Trigger.objects.values("action", "payload", "execution").get() == {
        **stored,
        "action": {**stored["action"], "command": "date"},
    }


def test_a_masked_value_that_nothing_stands_behind_is_refused(submit, api):
    for job in (
        {"action": {**SCRIPT, "env": {"PASSWORD": "***"}}},
        {"action": SCRIPT, "payload": {"pin": {"secret_value": "***"}}},
    ):
        answer = submit.client.post("/jobs", job)
        assert answer.status_code == 400
        assert "send the value itself" in json.dumps(answer.json()["errors"])
    answer = api("operator").post("/triggers", {**TRIGGER, "payload": {"token": "***"}})
    assert answer.status_code == 400 and "payload" in answer.json()["errors"]


WRONG = [{"secret": 5}, {"secret": "a", "more": 1}, {"secret": ""}, {"secret": "../a"}, {"secret_value": 5}]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_secret_is_refused_with_a_sentence(wrong, submit, api):
    of_step = {"name": "n", "steps": [{"key": "a", "action": SCRIPT, "payload": {"x": wrong}}]}
    calls = [
        (submit.client, "/jobs", {"action": {**SCRIPT, "env": {"X": wrong}}}, ["action", "env"]),
        (submit.client, "/jobs", {"action": SCRIPT, "payload": [{"deep": wrong}]}, ["payload"]),
        (submit.client, "/executions", of_step, ["steps"]),
        (submit.client, "/executions", {"name": "n", "steps": [step("a")], "inputs": {"x": wrong}}, ["inputs"]),
        (api("operator"), "/triggers", {**TRIGGER, "payload": {"x": wrong}}, ["payload"]),
    ]
    for client, path, body, where in calls:
        answer = client.post(path, body)
        assert answer.status_code == 400, answer.json()
        errors = answer.json()["errors"]
        for field in where:
            errors = errors[field]
        assert any(word in json.dumps(errors) for word in ("A secret is", "name of a secret", "A hidden value is"))
    assert not WorkerJob.objects.exists()


def test_an_environment_takes_texts_and_secrets_only(submit):
    for wrong in ({"other": 1}, 5, ["x"], None):
        answer = submit.client.post("/jobs", {"action": {**SCRIPT, "env": {"X": wrong}}})
        assert answer.status_code == 400


def test_inputs_that_must_be_an_object_are_no_secret(submit):
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    for body in (
        {"name": "n", "steps": [step("a")], "inputs": NAMED},
        {"name": "n", "steps": [step("a", action=child, payload=NAMED)]},
        {"name": "n", "steps": [step("a")], "on_error": [{"key": "h", "action": SCRIPT, "payload": NAMED}]},
    ):
        answer = submit.client.post("/executions", body)
        assert answer.status_code == 400
        assert "below a key of it" in json.dumps(answer.json()["errors"])


def test_the_payload_of_a_trigger_may_be_a_secret(api, worker):
    calls = api("operator")
    made = calls.post("/triggers", {**TRIGGER, "payload": NAMED}).json()
    calls.post(f"/triggers/{made['id']}/evaluate", {})
    [attempt] = worker(tags=["script"]).claim()
    assert attempt["job"]["payload"]["payload"] == NAMED


def test_a_celery_task_is_given_no_secret_for_its_message_goes_through_a_broker(submit):
    task = {"type": "celery", "task": "orders.charge", "kwargs": {"secret": "hunter2"}}
    answer = submit.client.post("/jobs", {"action": task, "payload": {"x": NAMED}})
    assert answer.status_code == 400 and "broker" in json.dumps(answer.json()["errors"]["payload"])
    job = submit(action=task, payload={"password": "hunter2"}, unmatched="wait")
    assert (job["action"]["kwargs"], job["payload"]) == ({"secret": "***"}, {"password": "***"})


def test_an_argument_of_a_django_task_may_be_called_secret(submit):
    payload = {"args": [], "kwargs": {"secret": 5, "more": 1}}
    job = submit(action={"type": "handler", "name": "django-task"}, payload=payload, unmatched="wait")
    assert WorkerJob.objects.get(pk=job["id"]).payload == payload
    assert job["payload"]["kwargs"] == {"secret": "***", "more": 1}


def test_what_is_resubmitted_has_its_secrets(submit, worker):
    job = submit(action=ACTION, payload=PAYLOAD)
    submit.client.post(f"/jobs/{job['id']}/cancel", {})
    again = submit.client.post(f"/jobs/{job['id']}/resubmit", {})
    assert again.status_code == 201 and not is_shown(again.content.decode())
    [attempt] = worker(tags=["script"]).claim()
    assert (attempt["job"]["action"]["env"], attempt["job"]["payload"]) == (ACTION["env"], PAYLOAD)


def test_pages_mask_them(submit, begin, staff, api):
    job = submit(action=ACTION, payload=PAYLOAD)
    run = begin(step("a", action=ACTION), inputs=PAYLOAD)
    trigger = api("operator").post("/triggers", TRIGGER).json()["id"]
    browser = staff("view_workerjob", "view_execution", "view_trigger", checks_csrf=False)
    pages = [f"/admin/instance/jobs/{job['id']}/", f"/admin/instance/executions/{run.id}/", "/admin/instance/triggers/"]
    rows = [f"workerjob/{job['id']}", f"execution/{run.id}", f"trigger/{trigger}"]
    for page in [*pages, *(f"/admin/jobs/{row}/change/" for row in rows)]:
        shown = browser.get(page)
        assert shown.status_code == 200, page
        assert not is_shown(shown.content.decode()), page
    assert "***" in browser.get(pages[0]).content.decode()


def test_the_form_of_a_trigger_masks_them_and_keeps_them(api, staff, monkeypatch):
    monkeypatch.setattr(Template, "_render", instrumented_test_render)
    trigger = api("operator").post("/triggers", TRIGGER).json()["id"]
    stored = Trigger.objects.values("action", "payload", "execution").get()
    page = f"/admin/jobs/trigger/{trigger}/change/"
    browser = staff("view_trigger", "change_trigger", checks_csrf=False)
    form = browser.get(page).context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    assert not is_shown(json.dumps(values))
    values = {name: value for name, value in values.items() if value is not None}
    answer = browser.post(page, {**values, "priority": "7", "slots-TOTAL_FORMS": "0", "slots-INITIAL_FORMS": "0"})
    assert answer.status_code == 302, answer.context["errors"]
    assert Trigger.objects.get().priority == 7
    assert Trigger.objects.values("action", "payload", "execution").get() == stored
