"""Forms of operators in the hands of a clumsy user, of an attacker of another namespace, and of two users at once."""

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from jobs.models import AlertChannel, Backfill, Hold, Incident, LimitRule, Trigger, WorkerJob
from jobs.services import limit_rules
from liveness.models import ApiToken, ServerEvent
from liveness.services import tokens
from tests.support.executions import SCRIPT, step
from tests.support.forms import fields_of
from tests.support.rounds import short_and_long

pytestmark = pytest.mark.django_db
PAGES = "/admin/instance/"
PERIOD = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:05:00Z"}
WRONG = [
    "", "\x00", "x" * 9_000, "-1", "1e400", "9" * 400, "\u202e", "[" * 2_000, '{"a": "\\u0000"}', "http://[",
    "https://:99999999/", "0001-01-01T00:00:00Z", "99999999999d", str(uuid.UUID(int=0)),
]  # fmt: skip


@pytest.fixture
def owner(db):
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root", is_staff=True))
    return client


@pytest.fixture
def forms(submit, api, worker, owner):
    """Return the address of each form, with fields that it accepts."""
    server = worker().id
    job = submit(unmatched="wait", tags=["none"], payload={"password": "hunter2"})["id"]
    run = submit.client.post("/executions", {"name": "x", "steps": [step("a")]}).json()["id"]
    submit.client.post(f"/executions/{run}/cancel", {})
    timed = {"name": "t", "interval_seconds": 60, "action": SCRIPT, "execution": {"name": "x", "steps": [step("a")]}}
    trigger = api("operator").post("/triggers", timed).json()["id"]
    channel = AlertChannel.objects.create(kind="email", address="ops@example.org")
    hold = Hold.objects.create(kind="tag", value="gpu", by="operator:o")
    backfill = Backfill.objects.create(
        trigger_id=trigger, start_at="2020-01-01T00:00Z", end_at="2020-01-02T00:00Z", max_running=1, by="operator:o"
    )
    incident = Incident.objects.create(rule="server_lost", subject="x", summary="A server is lost", details={})
    LimitRule.objects.create(pattern="stripe", namespace="default", running=1, note="", by="operator:o")
    tokens.create_token("old", "viewer")
    token = ApiToken.objects.get(name="old").pk
    return {
        "jobs/add/": {"command": "true", "priority": "0"},
        f"jobs/{job}/again/": {},
        f"jobs/{job}/edit/": {},
        f"jobs/run_now/?pick={job}": {},
        f"jobs/dump_stack/?pick={job}": {},
        f"executions/{run}/retry/": {},
        f"servers/{server}/change/": {},
        "holds/add/": {"kind": "tag", "value": "cpu", "mode": "pause"},
        "holds/kill/": {"kind": "tag", "value": "cpu", "note": "x"},
        f"holds/{hold.pk}/release/": {},
        "limits/set/": {"pattern": "mail", "running": "1"},
        "limits/delete/?pattern=stripe": {},
        "tokens/add/": {"name": "new"},
        f"tokens/{token}/revoke/": {"note": "x"},
        f"triggers/{trigger}/backfills/add/": {
            "from": "2020-01-01T00:00:00Z",
            "to": "2020-01-01T00:05:00Z",
            "max_running": "1",
        },
        f"triggers/{trigger}/backfills/{backfill.pk}/stop/": {},
        f"triggers/{trigger}/edit/": {},
        "alerts/channels/add/": {"kind": "webhook", "address": "https://example.org/hook"},
        f"alerts/channels/{channel.pk}/remove/": {},
        f"alerts/{incident.pk}/acknowledge/": {},
        f"alerts/{incident.pk}/assign/": {"owner": ""},
        f"alerts/{incident.pk}/comment/": {"comment": "seen"},
    }


def post_in_vain(browser: Client, path: str, sent: dict[str, str]) -> int:
    """Send a form, and undo what it changed. Return the status."""
    with transaction.atomic():
        status = browser.post(path, sent).status_code
        transaction.set_rollback(True)
    return status


def names_of(page: str) -> set[str]:
    return {*re.findall(r'<(?:input|select|textarea)[^>]* name="(\w+)"', page)} - {"csrfmiddlewaretoken"}


@pytest.mark.parametrize("step", short_and_long(2, 1))
def test_no_wrong_or_missing_value_of_any_form_is_a_fault(forms, owner, step):
    faults = []
    for number, (path, given) in enumerate(forms.items()):
        page = owner.get(PAGES + path)
        usual = {**fields_of(page.content.decode()), **given} if page.status_code == 200 else given
        names = sorted({*usual, *names_of(page.content.decode()), "seen", "until", "key"})
        # Each form gets half of the values (all if `step` is 1), and each field only some of them.
        tries = [
            {**usual, names[(number + place) % len(names)]: value}
            for place, value in enumerate(WRONG[number % step :: step])
        ]
        tries += [{name: value for name, value in usual.items() if name != left_out} for left_out in usual]
        for sent in [{}, *tries]:
            if post_in_vain(owner, PAGES + path, sent) >= 500:
                faults.append((path, {name: sent[name] for name in sent if usual.get(name) != sent[name]}))
    assert faults == []


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("holds/add/", {"kind": "tag", "value": "cpu", "mode": "pause"}),
        ("holds/add/", {"kind": "action", "value": "script", "mode": "refuse", "namespace": ""}),
        ("holds/kill/", {"kind": "tag", "value": "cpu", "mode": "pause", "note": "x", "key": "k", "seen": "0"}),
    ],
)
def test_a_member_of_one_namespace_holds_no_work_of_others_with_a_form_half_sent(member, path, given):
    member("red", "blue").post(PAGES + path, given)
    assert not Hold.objects.filter(namespace=None).exists()


def test_the_same_form_sent_twice_acts_once(owner, forms):
    Backfill.objects.all().delete()
    sent = {
        "jobs/add/": WorkerJob, "tokens/add/": ApiToken, "holds/add/": Hold, "alerts/channels/add/": AlertChannel,
        next(path for path in forms if path.endswith("backfills/add/")): Backfill,
    }  # fmt: skip
    more = {}
    for path, model in sent.items():
        before = model.objects.count()
        page = owner.get(PAGES + path).content.decode()
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
        fields = {**hidden, **fields_of(page), **forms[path]}
        if path.startswith("alerts"):
            fields |= {"kind": "email", "address": "b@example.org"}
        statuses = [owner.post(PAGES + path, fields).status_code for _ in range(2)]
        assert max(statuses) < 500, path
        if model.objects.count() != before + 1:
            more[path] = model.objects.count() - before, statuses
    assert more == {}


def test_a_comment_sent_twice_is_stored_once(owner, forms):
    path = next(path for path in forms if path.endswith("/comment/"))
    for _ in range(2):
        owner.post(PAGES + path, {"comment": "seen"})
    assert ServerEvent.objects.filter(action="comment_on_incident").count() == 1


def test_a_rule_that_another_user_deletes_at_the_same_moment_is_no_fault(owner, forms, monkeypatch):
    delete = limit_rules.delete_limit
    monkeypatch.setattr(limit_rules, "delete_limit", lambda *given: [delete(*given) for _ in range(2)])
    answer = owner.post(f"{PAGES}limits/delete/?pattern=stripe", {"note": ""})
    assert (answer.status_code, "Not done" in answer.content.decode()) == (404, True)


def test_a_form_sent_again_after_its_object_has_changed_is_no_fault(owner, forms):
    faults = []
    for path, given in forms.items():
        page = owner.get(PAGES + path).content.decode() if "alerts/" not in path else ""
        fields = {**fields_of(page), **given}
        statuses = [owner.post(PAGES + path, fields).status_code for _ in range(2)]
        if max(statuses) >= 500:
            faults.append((path, statuses))
    assert faults == []


def test_a_reader_gets_a_403_from_each_form(reader, forms):
    allowed = {path: reader.post(PAGES + path, given).status_code for path, given in forms.items()}
    assert {path for path, status in allowed.items() if status != 403} == set()
    assert {path for path in forms if "alerts/" not in path and reader.get(PAGES + path).status_code != 403} == set()


def test_a_form_for_an_object_of_another_namespace_is_refused(member, forms, owner):
    red = member("red")
    ids = {path for path in forms if re.search("[0-9a-f]{8}-", path) and "pick" not in path}
    statuses = {path: red.post(PAGES + path, forms[path]).status_code for path in ids}
    assert {path: status for path, status in statuses.items() if status not in (403, 404, 409)} == {}
    red.post(f"{PAGES}limits/delete/?pattern=stripe", {"note": ""})
    assert LimitRule.objects.filter(pattern="stripe").exists()
    job = next(path for path in forms if "run_now" in path)
    red.post(PAGES + job, {"note": "x"})
    assert not ServerEvent.objects.filter(action="change_job").exists()
    assert Trigger.objects.count() == 1
