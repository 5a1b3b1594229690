"""Approvals: steps that ask people, and their answers."""

import pytest
from django.contrib.auth.models import Group, User

from jobs.models import Incident
from jobs.services import alerts, waits
from liveness.models import ServerEvent
from liveness.services import tokens
from tests.support.executions import step
from tests.support.http import Caller
from tests.support.people import viewing
from tests.support.waits import approval

FIELDS = {
    "type": "object",
    "properties": {
        "version": {"type": "string", "title": "Version", "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "default": 2},
        "place": {"type": "string", "enum": ["eu", "us"]},
        "quick": {"type": "boolean"},
    },
    "required": ["version"],
    "additionalProperties": False,
}
PAGE = "/admin/instance/answers/"


@pytest.fixture
def answer(api):
    """Return a function that answers a step as an operator and returns the response."""
    operator = api("operator")

    def answer(run, key, choice="approve", client=operator, **body):
        return client.post(f"/executions/{run.id}/steps/{key}/answer", {"choice": choice, **body})

    return answer


@pytest.fixture
def person(client, db):
    """Return a function that logs in a person who may answer, in these groups."""

    def sign_in(*groups):
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(viewing("answer_execution"))
        user.groups.set([Group.objects.get_or_create(name=name)[0] for name in groups])
        client.force_login(user)
        return client

    return sign_in


def test_an_answer_ends_the_step_that_asks(begin, answer, do):
    last = step("b", "ok", payload={"from": "$.steps.ok.output.values.version"})
    run = begin(step("a"), approval("ok", "a", fields=FIELDS), last)
    do("a")
    assert run.step("ok")["state"] == "RUNNING"
    assert run.step("ok")["waiting_for"] == {
        "what": "answer", "until": None, "signal": None, "message": "Deploy 4.2?", "choices": ["approve", "reject"],
        "fields": FIELDS, "group": None,
    }  # fmt: skip
    answered = answer(run, "ok", values={"version": "4.2"}, note="tested")
    assert (answered.status_code, answered.json()["state"]) == (200, "COMPLETED")
    output = run.step("ok")["output"]
    assert output.pop("at").endswith("Z")
    assert output == {"choice": "approve", "values": {"version": "4.2"}, "by": "operator:a operator"}
    assert do.take()["b"]["job"]["payload"] == "4.2"
    event = ServerEvent.objects.get(action="answer_execution")
    assert (event.actor, event.reason, event.subject_id) == ("operator:a operator", "tested", run.step("ok")["job"])


def test_reject_fails_the_step(begin, answer):
    run = begin(approval("ok"), step("b", "ok"))
    answer(run, "ok", "reject", note="too early")
    failed = run.step("ok")
    assert (failed["state"], failed["error"]) == ("FAILED", {"code": "REJECTED", "message": "too early"})
    assert failed["output"]["choice"] == "reject"
    assert (run.state, run.step("b")["state"]) == ("FAILED", "SKIPPED")


def test_other_choices_complete_the_step(begin, answer):
    run = begin(approval("ok", choices=["today", "tomorrow"]))
    assert answer(run, "ok", "approve").status_code == 400
    answer(run, "ok", "tomorrow")
    assert (run.state, run.step("ok")["output"]["choice"]) == ("COMPLETED", "tomorrow")


def test_the_second_answer_is_refused(begin, answer):
    run = begin(approval("ok"))
    assert answer(run, "ok").status_code == 200
    second = answer(run, "ok", "reject")
    assert (second.status_code, second.json()["code"]) == (409, "already_answered")
    assert second.json()["by"] == "operator:a operator"
    assert ServerEvent.objects.filter(action="answer_execution").count() == 1


def test_a_step_that_does_not_wait_cannot_be_answered(begin, answer, do):
    run = begin(step("a"), approval("ok", "a"))
    for key in "a", "ok":
        refused = answer(run, key)
        assert (refused.status_code, refused.json()["code"]) == (409, "not_waiting")
    run.cancel()
    assert answer(run, "ok").json()["code"] == "not_waiting"
    assert answer(run, "nobody").status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"choice": "maybe"}, "choice"),
        ({"values": {}}, "version"),
        ({"values": {"version": 4}}, "version"),
        ({"values": {"version": "4.2.22"}}, "version"),
        ({"values": {"version": "4", "count": 0}}, "count"),
        ({"values": {"version": "4", "count": 1.5}}, "count"),
        ({"values": {"version": "4", "count": True}}, "count"),
        ({"values": {"version": "4", "place": "asia"}}, "place"),
        ({"values": {"version": "4", "quick": 1}}, "quick"),
        ({"values": {"version": "4", "more": 1}}, "more"),
        ({"values": [1]}, "values"),
    ],
    ids=str,
)
def test_a_wrong_answer_is_refused_and_names_the_field(begin, answer, body, field):
    run = begin(approval("ok", fields=FIELDS))
    refused = answer(run, "ok", **body)
    assert refused.status_code == 400
    assert field in str(refused.json()["errors"])
    assert run.step("ok")["state"] == "RUNNING"


@pytest.mark.parametrize(
    ("action", "named"),
    [
        ({"message": ""}, "message"),
        ({"message": "x" * 1001}, "1000"),
        ({"choices": []}, "choices"),
        ({"choices": ["a", "a"]}, "differ"),
        ({"choices": ["skip"]}, "skip"),
        ({"on_timeout": "approve"}, "timeout_seconds"),
        ({"timeout_seconds": 5, "on_timeout": "maybe"}, "reject"),
        ({"fields": {"properties": {"a": {"type": "array"}}}}, "'a'"),
        ({"fields": {"properties": {"a": {"type": "string", "pattern": "x"}}}}, "pattern"),
        ({"fields": {"properties": {"choice": {"type": "string"}}}}, "choice"),
        ({"fields": {"type": "array"}}, "object"),
        ({"fields": {"additionalProperties": True}}, "additionalProperties"),
        ({"fields": {"required": ["a"]}}, "required"),
        ({"fields": {"properties": {"a": {"type": "integer", "default": "x"}}}}, "'x'"),
        ({"fields": {"properties": {"a": {"type": "string", "title": "x" * 17_000}}}}, "16384"),
        ({"seconds": 5}, "Unknown"),
        ({"payload": {}}, "runs no code"),
    ],
    ids=str,
)
def test_a_wrong_approval_is_refused_at_submission(submitter, action, named):
    answer = submitter.post("/executions", {"name": "x", "steps": [approval("ok", **action)]})
    assert answer.status_code == 400
    assert named in str(answer.json()["errors"])


def test_the_message_may_be_a_reference(begin):
    run = begin(approval("ok", message={"from": "$.inputs.question"}), inputs={"question": "Ship it?"})
    assert run.step("ok")["waiting_for"]["message"] == "Ship it?"


@pytest.mark.parametrize("value", [7, "", "a\nb", "x" * 1001], ids=str)
def test_a_referenced_message_that_is_wrong_fails_the_step(begin, value):
    run = begin(approval("ok", message={"from": "$.inputs.question"}), inputs={"question": value})
    assert run.step("ok")["error"]["code"] == "INPUT_NOT_AVAILABLE"
    assert "$.inputs.question" in run.step("ok")["error"]["message"]


@pytest.mark.parametrize("role", ["client", "viewer", "worker"])
def test_only_operators_answer(begin, answer, api, role):
    refused = answer(begin(approval("ok")), "ok", client=api(role))
    assert refused.status_code == 403


def test_an_operator_of_another_namespace_finds_no_step(begin, answer):
    red = Caller(tokens.create_token("red", "operator", namespace="red"))
    assert answer(begin(approval("ok")), "ok", client=red).status_code == 404


@pytest.mark.parametrize(
    ("on_timeout", "state", "code"),
    [
        ({}, "FAILED", "STEP_TIMEOUT"),
        ({"on_timeout": "fail"}, "FAILED", "STEP_TIMEOUT"),
        ({"on_timeout": "skip"}, "SKIPPED", "STEP_TIMEOUT"),
        ({"on_timeout": "approve"}, "COMPLETED", None),
        ({"on_timeout": "reject"}, "FAILED", "REJECTED"),
    ],
    ids=str,
)
def test_the_action_decides_what_a_timeout_does(begin, answer, clock, on_timeout, state, code):
    run = begin(approval("ok", timeout_seconds=60, **on_timeout))
    clock.advance(60)
    assert waits.end_waits() == {state: 1}
    ended = run.step("ok")
    assert (ended["state"], ended["error"] and ended["error"]["code"]) == (state, code)
    chosen = on_timeout.get("on_timeout") if on_timeout.get("on_timeout") in ("approve", "reject") else None
    assert (ended["output"] or {}).get("choice") == chosen
    assert (ended["output"] or {"by": None})["by"] is None
    assert answer(run, "ok").json()["code"] == ("already_answered" if chosen else "not_waiting")


def test_a_group_limits_people_but_no_token(begin, answer, person):
    run = begin(approval("ok", group="release managers"), approval("other", group="release managers"))
    browser = person("others")
    refused = browser.post(f"{PAGE}{run.step('ok')['job']}/", {"choice": "approve"})
    assert refused.status_code == 409
    assert "release managers" in refused.content.decode()
    assert answer(run, "ok").status_code == 200
    User.objects.get(username="ann").groups.set([Group.objects.create(name="release managers")])
    assert browser.post(f"{PAGE}{run.step('other')['job']}/", {"choice": "approve"}).status_code == 302
    assert run.state == "COMPLETED"


def test_the_page_lists_what_waits_for_an_answer(begin, person):
    run = begin(approval("ok", message="Deploy <4.2>?"), approval("later", timeout_seconds=60))
    page = person().get(PAGE).content.decode()
    assert "Deploy &lt;4.2&gt;?" in page
    assert f"{PAGE}{run.step('ok')['job']}/" in page
    assert "times out in" in page
    assert "2 waiting for a person" in page


def test_the_form_has_the_choice_and_each_field_by_its_name(begin, person):
    run = begin(approval("ok", fields=FIELDS))
    browser, url = person(), f"{PAGE}{run.step('ok')['job']}/"
    page = browser.get(url).content.decode()
    for name in ("choice", "version", "count", "place", "quick", "note"):
        assert f'name="{name}"' in page
    wrong = browser.post(url, {"choice": "approve", "version": "", "count": "0"})
    assert wrong.status_code == 200
    assert "This field is required." in wrong.content.decode()
    sent = browser.post(url, {"choice": "approve", "version": "4.2", "count": "3", "place": "eu", "quick": "on"})
    assert sent.status_code == 302
    output = run.step("ok")["output"]
    assert output["values"] == {"version": "4.2", "count": 3, "place": "eu", "quick": True}
    assert output["by"] == "operator:ann"
    again = browser.post(url, {"choice": "reject", "version": "4.2"})
    assert again.status_code == 409
    assert "already answered" in again.content.decode()


def test_the_pages_of_the_execution_and_the_job_lead_to_the_form(begin, person):
    run = begin(approval("ok"))
    job = run.step("ok")["job"]
    browser = person()
    assert f"{PAGE}{job}/" in browser.get(f"/admin/instance/executions/{run.id}/").content.decode()
    page = browser.get(f"/admin/instance/jobs/{job}/").content.decode()
    assert "waits for an answer: Deploy 4.2?" in page
    assert f'href="{PAGE}{job}/">Answer…</a>' in page
    reader = User.objects.get(username="ann")
    reader.user_permissions.remove(*viewing("view_execution"))
    assert "Answer…" not in browser.get(f"/admin/instance/jobs/{job}/").content.decode()


def test_an_alert_opens_when_a_step_waits_for_an_answer(begin, answer, settings, clock):
    settings.CONSOLE_URL = "https://cp.example.org"
    run = begin(approval("ok"))
    alerts.run_alerts()
    incident = Incident.objects.get(rule="answer_waits")
    assert incident.summary == "1 step waits for an answer: Deploy 4.2?"
    assert incident.url == f"https://cp.example.org{PAGE}{run.step('ok')['job']}/"
