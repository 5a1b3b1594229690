"""Operator actions record one event with subject, actor and note, the same over the API, commands and pages.

A new call, command or page that is not listed here fails.
"""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction

from jobs.models import AlertMessage, Execution, Hold, Trigger
from jobs.services.operator_actions import OPERATIONS
from liveness.models import ApiToken, Brake, ServerEvent
from tests.integration.api.test_access import LINES
from tests.support.executions import SCRIPT, step
from tests.support.forms import fields_of
from tests.support.waits import approval

pytestmark = pytest.mark.django_db

NOTE = "the rack burns"
TEMPLATE = {"name": "report", "steps": [step("a")]}
TRIGGER = {"name": "hourly", "interval_seconds": 3600, "action": SCRIPT, "execution": TEMPLATE}
TRIGGER_FORM = {
    "name": "hourly", "enabled": "on", "interval_seconds": "3600", "timezone": "UTC", "missed": "skip", "priority": "0",
    "timeout_seconds": "300", "max_retries": "1", "action": json.dumps(SCRIPT), "execution": json.dumps(TEMPLATE),
    "slots-TOTAL_FORMS": "0", "slots-INITIAL_FORMS": "0",
}  # fmt: skip
INSTANCE = "admin/instance/"
SERVER, JOB, EXECUTION = "servers/<uuid:server>", "jobs/<uuid:job>", "executions/<uuid:execution>"
TRIGGERS, ONE_TRIGGER = "admin/jobs/trigger/", "admin/jobs/trigger/<path:object_id>/"
TRIGGER_PAGES = f"{INSTANCE}triggers/"
ONE = "triggers/<uuid:trigger>"
PERIOD = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"}

AGAIN = f"{INSTANCE}jobs/resubmit_again/"

# Each action with its calls, commands and pages.
DOORS = {
    **{
        verb: {f"POST {SERVER}/{verb}", f"manage.py {verb}", f"{INSTANCE}servers/{verb}/"}
        for verb in ("cordon", "uncordon", "drain", "undrain", "disconnect")
    },
    "maintenance_enter": {"POST maintenance/enter", "manage.py maintenance", f"{INSTANCE}maintenance/enter/"},
    "maintenance_exit": {"POST maintenance/exit", "manage.py maintenance", f"{INSTANCE}maintenance/exit/"},
    "brake_released": {"POST brake/release", "manage.py release_brake", f"{INSTANCE}brake/release/"},
    "cancel_job": {f"POST {JOB}/cancel", f"{INSTANCE}jobs/cancel/"},
    "resubmit_job": {
        f"POST {JOB}/resubmit", f"{INSTANCE}jobs/resubmit/", f"{INSTANCE}quarantine/resubmit/", AGAIN,
    },
    "fail_job": {f"POST {JOB}/fail", f"{INSTANCE}jobs/fail/"},
    "change_job": {f"PATCH {JOB}"},
    "dismiss_job": {f"{INSTANCE}quarantine/dismiss/"},
    "cancel_execution": {f"POST {EXECUTION}/cancel", f"{INSTANCE}executions/cancel/"},
    "seal_execution": {f"POST {EXECUTION}/seal", f"{INSTANCE}executions/seal/"},
    "rerun_execution": {f"POST {EXECUTION}/rerun", f"{INSTANCE}executions/rerun/"},
    "restart_execution": {f"POST {EXECUTION}/restart", f"{INSTANCE}executions/restart/"},
    "answer_execution": {f"POST {EXECUTION}/steps/<str:step>/answer", f"{INSTANCE}answers/<uuid:job>/"},
    "create_trigger": {"POST triggers", f"{TRIGGERS}add/", f"{TRIGGER_PAGES}add/"},
    "change_trigger": {
        "PATCH triggers/<uuid:trigger>", f"{ONE_TRIGGER}change/",
        *(f"{TRIGGER_PAGES}{way}/" for way in ("pause", "resume", "<uuid:trigger>/edit")),
    },
    "delete_trigger": {
        "DELETE triggers/<uuid:trigger>", f"{ONE_TRIGGER}delete/", f"{TRIGGERS} delete_selected",
        f"{TRIGGER_PAGES}delete/",
    },
    "evaluate_trigger": {
        "POST triggers/<uuid:trigger>/evaluate", f"{TRIGGERS} evaluate_now", f"{TRIGGER_PAGES}evaluate/",
    },
    "begin_backfill": {f"POST {ONE}/backfills", f"{TRIGGER_PAGES}<uuid:trigger>/backfills/add/"},
    "stop_backfill": {
        f"POST {ONE}/backfills/<uuid:backfill>/stop",
        f"{TRIGGER_PAGES}<uuid:trigger>/backfills/<uuid:backfill>/stop/",
    },
    "set_limit": {"PUT limits/<path:pattern>"},
    "delete_limit": {"DELETE limits/<path:pattern>"},
    "create_hold": {"POST holds", f"{INSTANCE}holds/add/"},
    "release_hold": {"DELETE holds/<uuid:hold>", f"{INSTANCE}holds/<uuid:hold>/release/"},
    "requeue_stale_claimed": {
        "POST recovery/requeue-stale-claimed", "manage.py requeue_stale_claimed",
        f"{INSTANCE}recovery/requeue-stale-claimed/",
    },
    "fail_stale_running": {
        "POST recovery/fail-stale-running", "manage.py fail_stale_running", f"{INSTANCE}recovery/fail-stale-running/",
    },
    "after_restore": {"manage.py after_restore"},
    "mute_alerts": {"manage.py alerts", f"{INSTANCE}alerts/mute/"},
    "unmute_alerts": {"manage.py alerts", f"{INSTANCE}alerts/unmute/"},
    "send_message_again": {
        "POST notifications/<uuid:notification>/send-again", f"{INSTANCE}alerts/<uuid:message>/send-again/",
    },
    "create_token": {"manage.py create_token"},
    "revoke_token": {"manage.py revoke_token"},
}  # fmt: skip
BATCHED = {
    **{name: name.removesuffix("_server") for name in OPERATIONS if name.endswith("_server")},
    **{name: name for name in ("cancel_job", "resubmit_job", "fail_job", "dismiss_job", "delete_trigger")},
    "change_job": "change_job",
    **{name: name for name in ("cancel_execution", "seal_execution", "rerun_execution", "restart_execution")},
    "evaluate_trigger": "evaluate_trigger",
    "pause_trigger": "change_trigger", "resume_trigger": "change_trigger",
}  # fmt: skip
"""Actions on many rows in one call. Each row gets the same event as a single action."""
for operation, action in BATCHED.items():
    DOORS[action] = DOORS[action] | {f"POST batches {operation}"}
NO_INTERVENTION = {
    # Jobs and executions of an operator are found by their owner, like those of a client.
    "POST jobs", "POST executions", "POST signals/<str:signal>", f"POST {EXECUTION}/steps",
    # Celery beat runs these too. A run by hand does nothing else.
    "manage.py check_liveness", "manage.py sweep_jobs", "manage.py prune",
    # Commands for trials, for reading, and for the whole system in one terminal.
    "manage.py seed", "manage.py sql", "manage.py export_events", "manage.py standalone",
    # It needs the key and a shell, and is about the database, not about the jobs.
    "manage.py replace_signing_key",
    # It changes the schema, and only connects in another way than Django's own command.
    "manage.py migrate",
    # The refresh interval of the pages, the saved views and the hidden first steps are kept in cookies.
    f"{INSTANCE}poll/", f"{INSTANCE}views/save/", f"{INSTANCE}first-steps/hide/",
    # These change nothing: a message is marked as a test, and the page of a batch shows who stopped it.
    f"{INSTANCE}alerts/test/", f"{INSTANCE}batches/<uuid:batch>/stop/", "POST batches/<uuid:batch>/stop",
}  # fmt: skip
OWN_FORMS = {
    *(f"{INSTANCE}jobs/{way}/" for way in ("add", "<uuid:job>/again", "<uuid:job>/edit", "run_now", "dump_stack")),
    *(f"{INSTANCE}tokens/{way}/" for way in ("add", "<uuid:token>/revoke")),
    *(f"{INSTANCE}alerts/<uuid:incident>/{way}/" for way in ("acknowledge", "assign", "comment")),
    *(f"{INSTANCE}alerts/channels/{way}/" for way in ("add", "<uuid:channel>/remove")),
    f"{INSTANCE}executions/<uuid:execution>/retry/", f"{INSTANCE}servers/<uuid:server>/change/",
    f"{INSTANCE}limits/set/", f"{INSTANCE}limits/delete/", f"{INSTANCE}holds/kill/",
}  # fmt: skip
"""Forms with fields of their own. Their tests look at the events: test_job_forms.py, test_stack_dumps.py,
test_token_pages.py, test_incident_pages.py, test_channel_pages.py, test_retry_form.py, test_change_worker.py,
test_limit_pages.py and test_kill_page.py."""
MANY_IN_ONE = {
    f"{INSTANCE}recovery/<slug:name>/": {
        f"{INSTANCE}recovery/{way}/" for way in ("requeue-stale-claimed", "fail-stale-running")
    },
    TRIGGERS: {f"{TRIGGERS} delete_selected", f"{TRIGGERS} evaluate_now"},
    "POST batches": {f"POST batches {operation}" for operation in BATCHED},
}


def test_every_door_through_which_an_operator_acts_stands_in_the_list():
    calls = {
        f"{method} {line.address.removeprefix('api/v1/')}"
        for line in LINES
        for method in line.methods - {"GET"}
        if line.address.startswith("api/v1/") and "operator" in line.who.split()
    }
    commands = {
        f"manage.py {path.stem}"
        for app in ("controlplane", "liveness", "jobs")
        for path in Path(app, "management", "commands").glob("[!_]*.py")
    }
    pages = {line.address for line in LINES if line.address.startswith(INSTANCE) and "POST" in line.methods}
    pages |= {
        line.address
        for line in LINES
        if line.address.startswith(TRIGGERS) and re.search(r"(trigger|add|change|delete)/$", line.address)
    }
    doors = calls | commands | pages
    named = set().union(NO_INTERVENTION, OWN_FORMS, *DOORS.values())
    for door, ways in MANY_IN_ONE.items():
        assert named >= ways
        named = named - ways | {door}
    assert named == doors


def fill_in(address, thing):
    """Return an address with the ids of a thing."""
    address = address.replace("<uuid:backfill>", str(getattr(thing, "backfill", "")))
    return re.sub("<[^>]+>", str(getattr(thing, "message", thing.id)), address)


class World:
    """Rows of each kind that actions apply to, in the state that the action needs."""

    def __init__(self, api, worker, submit, begin, client, clock):
        self.operator, self.registrar, self.clock = api("operator"), api("worker"), clock
        self.submit, self.begin, self.worker, self.browser = submit, begin, worker, client
        self.browser.force_login(User.objects.create_superuser("ann"))

    def arrange(self, action):
        """Return the subject of an action: its type and id, and the ids in its addresses."""
        return getattr(self, f"for_{action}", getattr(self, f"for_{action.partition('_')[2]}", self.for_server))(action)

    def for_server(self, action):
        one = self.worker()
        if action.startswith("un"):
            self.operator.post(f"/servers/{one.id}/{action.removeprefix('un')}", {"note": "before"})
        return SimpleNamespace(type="server", id=one.id)

    def for_maintenance_enter(self, action):
        return SimpleNamespace(type="instance", id="")

    for_after_restore = for_mute_alerts = for_maintenance_enter

    def for_unmute_alerts(self, action):
        call_command("alerts", "mute")
        return SimpleNamespace(type="instance", id="")

    def for_send_message_again(self, action):
        given_up = AlertMessage.objects.create(
            event="notify", channel="notify", url="https://example.org", namespace="default", next_try_at=None,
            payload={"type": "job.failed", "data": {"id": "x", "name": "x"}},
        )  # fmt: skip
        return SimpleNamespace(type="instance", id="", message=given_up.pk)

    def for_maintenance_exit(self, action):
        self.operator.post("/maintenance/enter", {"note": "before"})
        return SimpleNamespace(type="instance", id="")

    def for_brake_released(self, action):
        Brake.objects.create(type="WORKER", engaged_observed=0, silent=3, alive=4)
        return SimpleNamespace(type="brake", id="WORKER")

    def for_job(self, action):
        job = self.submit(on_worker_lost="FAIL", priority=9)
        one = self.worker()
        attempt = one.hold()
        if action == "dismiss_job":
            crashed = {"code": "WORKER_CRASHED", "message": "x"}
            one.report({"attempt": attempt["id"], "event": "FAILED", "error": crashed})
        return SimpleNamespace(type="job", id=job["id"])

    def for_change_job(self, action):
        return SimpleNamespace(type="job", id=self.submit(priority=1, unmatched="wait")["id"])

    def for_execution(self, action):
        run = self.begin(step("a"), sealed=action != "seal_execution")
        if action in ("rerun_execution", "restart_execution"):
            run.cancel()
        return SimpleNamespace(type="execution", id=run.id)

    def for_answer_execution(self, action):
        run = self.begin(approval("ok"))
        return SimpleNamespace(type="job", id=run.step("ok")["job"], execution=run.id)

    def for_create_trigger(self, action):
        return SimpleNamespace(type="trigger", id=None)

    def for_trigger(self, action):
        return SimpleNamespace(type="trigger", id=self.operator.post("/triggers", TRIGGER).json()["id"])

    def for_begin_backfill(self, action):
        return self.for_trigger(action)

    def for_stop_backfill(self, action):
        thing = self.for_trigger(action)
        thing.backfill = self.operator.post(f"/triggers/{thing.id}/backfills", PERIOD).json()["id"]
        return thing

    def for_set_limit(self, action):
        return SimpleNamespace(type="limit", id="customer:42")

    def for_delete_limit(self, action):
        self.operator.call("PUT", "/limits/customer:42", {"running": 1})
        return self.for_set_limit(action)

    def for_create_hold(self, action):
        return SimpleNamespace(type="hold", id=None)

    def for_release_hold(self, action):
        return SimpleNamespace(type="hold", id=self.operator.post("/holds", {"of": {"tag": "gpu"}}).json()["id"])

    def for_stale_claimed(self, action):
        self.submit()
        self.worker().hold(running=action != "requeue_stale_claimed")
        self.clock.advance(20)
        return SimpleNamespace(type="attempts", id="")

    for_requeue_stale_claimed = for_fail_stale_running = for_stale_claimed

    def for_create_token(self, action):
        return SimpleNamespace(type="token", id=None)

    def for_revoke_token(self, action):
        token = ApiToken.objects.get(prefix=self.registrar.token[:11])
        return SimpleNamespace(type="token", id=str(token.pk), prefix=token.prefix)

    def go_through(self, door, action, thing):
        kind, _, rest = door.partition(" ")
        if kind == "manage.py":
            self.run(rest, action, thing)
        elif kind in ("POST", "PUT", "PATCH", "DELETE"):
            self.call(kind, rest, thing)
        else:
            self.visit(kind, rest, thing)

    def run(self, command, action, thing):
        words = {
            "maintenance": [action.partition("_")[2]], "alerts": [action.partition("_")[0]],
            "release_brake": [], "after_restore": [], "create_token": ["--role", "client", "mine"],
            "requeue_stale_claimed": ["--older-than", "10s"], "fail_stale_running": ["--older-than", "10s"],
            "revoke_token": [getattr(thing, "prefix", "")],
        }.get(command, [thing.id])  # fmt: skip
        call_command(command, *words, "--note", NOTE)

    def call(self, method, address, thing):
        body = {"note": NOTE}
        if address.startswith("batches "):
            address, operation = address.split()
            body |= {"operation": operation, "ids": [str(thing.id)]}
            body |= {"changes": {"priority": 7}} if operation == "change_job" else {}
        if address.startswith("recovery"):
            body["older_than_seconds"] = 10
        body |= {"triggers": TRIGGER, "holds": {"of": {"tag": "gpu"}}}.get(address, {})
        if method == "PATCH":
            body["priority"] = 7
        if method == "PUT":
            body["running"] = 2
        if address.endswith("/answer"):
            body["choice"] = "approve"
            address = address.replace("<uuid:execution>", thing.execution).replace("<str:step>", "ok")
        body |= PERIOD if address.endswith("/backfills") else {}
        path = "/" + fill_in(address, thing)
        if method == "DELETE":
            answer = self.operator.call(method, f"{path}?note={NOTE.replace(' ', '+')}", b"")
        else:
            answer = self.operator.call(method, path, body)
        assert answer.status_code in (200, 201, 204), answer.json()

    def visit(self, address, admin_action, thing):
        path = "/" + fill_in(address, thing)
        if admin_action:
            form = {"action": admin_action, "_selected_action": [thing.id], "note": NOTE}
            form |= {"post": "yes"} if admin_action == "delete_selected" else {}
        elif address.startswith(TRIGGERS):
            form = {"post": "yes", "note": NOTE} if address.endswith("delete/") else {**TRIGGER_FORM, "note": NOTE}
            assert 'name="note"' in self.browser.get(path).content.decode()
        elif address == f"{INSTANCE}holds/add/":
            form = {**fields_of(self.browser.get(path).content.decode()), "note": NOTE}
            form |= {"kind": "tag", "value": "gpu", "mode": "pause"}
        elif address.endswith(("/add/", "/edit/")):
            form = {**fields_of(self.browser.get(path).content.decode()), "note": NOTE}
            form |= {
                "name": "daily",
                "cron": "0 2 * * *",
                "execution": TRIGGER_FORM["execution"],
                "max_running": 1,
                **PERIOD,
            }
        elif address.startswith(f"{INSTANCE}alerts/"):
            path, form = f"{path}?rule=all", {"duration": "1h", "note": NOTE}
        else:
            path += f"?pick={thing.id}" if thing.id and not re.search("maintenance|brake", address) else ""
            path += "?older_than=10" if "recovery" in address else ""
            page = self.browser.get(path).content.decode()
            hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.partition("<main")[2])
            form = {**dict(hidden), "note": NOTE} | ({"choice": "approve"} if "answers" in address else {})
        answer = self.browser.post(path, form)
        assert answer.status_code == 302, answer.content.decode()

    def made(self, thing):
        """Return the id of the row that the action made."""
        if thing.id is not None:
            return thing.id
        made = {"trigger": Trigger.objects, "hold": Hold.objects, "token": ApiToken.objects.filter(name="mine")}
        return str(made[thing.type].get().pk)


@pytest.fixture
def world(api, worker, submit, begin, client, clock, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ann")
    return World(api, worker, submit, begin, client, clock)


@pytest.mark.parametrize("action", DOORS)
def test_an_action_records_the_same_event_from_api_command_and_page(world, subtests, action):
    for door in sorted(DOORS[action]):
        with subtests.test(door), transaction.atomic():
            assert_leaves_its_event(world, action, door)
            transaction.set_rollback(True)


def assert_leaves_its_event(world, action, door):
    thing = world.arrange(action)
    if door.startswith(f"{INSTANCE}quarantine/resubmit"):
        thing = world.for_job("dismiss_job")
    if door == AGAIN:
        thing = world.for_job("dismiss_job")
        world.operator.post(f"/jobs/{thing.id}/resubmit", {})
    if door in (f"{TRIGGER_PAGES}resume/", "POST batches resume_trigger"):
        world.operator.call("PATCH", f"/triggers/{thing.id}", {"enabled": False})
    before = ServerEvent.objects.latest("pk").pk if ServerEvent.objects.exists() else 0
    world.go_through(door, action, thing)
    events = [
        (event.action or event.to_state, event.subject_type, event.subject_id, event.actor, event.note)
        for event in ServerEvent.objects.filter(pk__gt=before)
    ]
    actor = "operator:a operator" if door.startswith(("POST", "PUT", "PATCH", "DELETE")) else "operator:ann"
    became = "DISCONNECTED" if action == "disconnect" else action
    assert events == [(became, thing.type, world.made(thing), actor, NOTE)]


def test_all_that_can_be_done_to_many_has_its_door():
    assert BATCHED.keys() == OPERATIONS.keys() - {"resubmit_job_again", "dump_stack"}


def test_what_is_refused_or_was_done_before_leaves_none(world):
    job, operator = world.for_job("cancel_job"), world.operator
    assert operator.post(f"/jobs/{job.id}/cancel", {}).status_code == 200
    before = ServerEvent.objects.count()
    assert operator.post(f"/jobs/{job.id}/cancel", {"note": "again"}).status_code == 200
    assert operator.post(f"/jobs/{job.id}/resubmit", {"note": "again"}).status_code == 409
    assert ServerEvent.objects.count() == before


@pytest.mark.parametrize("key", ["a", "b"])
def test_an_action_on_a_step_is_one_event_of_the_job_that_it_is(world, key):
    run = world.begin(step("a"), step("b", "a"))
    job = run.step(key)["job"]
    assert world.operator.post(f"/jobs/{job}/cancel", {"note": NOTE}).status_code == 200
    assert [(e.action, e.subject_type, e.subject_id) for e in ServerEvent.objects.exclude(action="")] == [
        ("cancel_job", "job", job)
    ]


def test_an_action_on_a_job_that_is_an_execution_is_one_event_of_that_job(world):
    job = world.submit(action={"type": "execution", "name": "child", "steps": [step("x")]})["id"]
    assert world.operator.post(f"/jobs/{job}/cancel", {"note": NOTE}).status_code == 200
    assert Execution.objects.get().state == "CANCELLED"
    assert [(e.action, e.subject_type, e.subject_id, e.note) for e in ServerEvent.objects.exclude(action="")] == [
        ("cancel_job", "job", job, NOTE)
    ]


def test_the_servers_that_go_with_a_token_are_its_events_consequences(world):
    one = world.worker()
    token = ApiToken.objects.get(server__id=one.id)
    call_command("revoke_token", token.prefix, "--note", NOTE)
    call_command("revoke_token", token.prefix, "--with-servers", "--note", NOTE)
    events = ServerEvent.objects.filter(actor="operator:ann").order_by("pk")
    assert [(e.action, e.to_state, e.subject_type, e.subject_id) for e in events] == [
        ("revoke_token", "", "token", str(token.pk)),
        ("", "DISCONNECTED", "server", one.id),
        ("end_servers", "", "token", str(token.pk)),
    ]


@pytest.mark.parametrize("note", ["x" * 1001, "two\nlines"])
@pytest.mark.parametrize(
    "words",
    [
        ["cordon", "x"], ["maintenance", "enter"], ["release_brake"], ["requeue_stale_claimed"], ["fail_stale_running"],
        ["create_token", "--role", "client", "x"], ["revoke_token", "cp_12345678"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_commands_note_is_one_line_of_a_thousand_letters_at_most(words, note):
    with pytest.raises(Exception, match="--note"):
        call_command(*words, "--note", note)
    assert not ServerEvent.objects.exists() and not ApiToken.objects.exists()
