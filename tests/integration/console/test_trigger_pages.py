"""Trigger page: next and past slots, and operator actions."""

import json
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from controlplane.console.presenters.schedules import describe_cron
from jobs import schedules
from jobs.models import Execution, Trigger, TriggerSlot
from jobs.services import evaluations
from liveness.models import ServerEvent
from tests.integration.console.test_page_actions import act, words
from tests.support.executions import SCRIPT, step
from tests.support.forms import fields_of
from tests.support.queries import CapturedQueries

pytestmark = pytest.mark.django_db

AT = "/admin/instance/triggers"
EXECUTION = {"name": "x", "steps": [step("a")]}


@pytest.fixture
def make(api, clock):
    """Create a trigger, hourly by default."""

    def make(**fields):
        schedule = {} if "cron" in fields else {"interval_seconds": 3600}
        body = {"name": "hourly", **schedule, "action": SCRIPT, "execution": EXECUTION, **fields}
        answer = api("operator").post("/triggers", body)
        assert answer.status_code == 201, answer.json()
        return answer.json()["id"]

    return make


def test_the_next_five_slots_are_those_of_the_schedule_in_its_time_zone(make, staff):
    trigger = make(cron="30 2 * * *", timezone="Asia/Kolkata")
    slots = schedules.upcoming_slots(Trigger.objects.get(), Trigger.objects.get().created_at, 5)
    page = words(staff(checks_csrf=False).get(f"{AT}/{trigger}/"))
    assert slots[0] == Trigger.objects.get().next_slot_at
    assert len(slots) == 5
    assert page.count("02:30:00 IST") == 5
    assert all(f"{slot:%b %d} 21:00:00" in page for slot in slots[1:])


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 8 * * 1-5", "weekdays at 08:00"),
        ("0 8 * * MON-FRI", "weekdays at 08:00"),
        ("30 9 * * 0,6", "weekends at 09:30"),
        ("30 2 * * *", "every day at 02:30"),
        ("0 0 1 * *", "the first day of every month at 00:00"),
        ("0 8 * * MON#1", "the first Monday of the month at 08:00"),
        ("10 0 8 1 1 *", "January 1 at 08:00:10"),
        ("*/5 * * * *", "every fifth minute of every hour"),
        ("0,40 0-3 * * *", "at minutes 0 and 40 past every hour from 0 through 3"),
        ("never", ""),
    ],
)
def test_a_cron_expression_has_words(cron, expected):
    assert describe_cron(cron) == expected


def test_the_pages_show_the_schedule_in_words(make, staff):
    nightly = make(name="nightly", cron="0 8 * * 1-5", timezone="Europe/Zurich")
    often = make(name="often", interval_seconds=90)
    browser = staff(checks_csrf=False)
    listed = words(browser.get(f"{AT}/"))
    for trigger, expected in ((nightly, "weekdays at 08:00 Europe/Zurich"), (often, "every 1 min 30 s")):
        assert expected in listed
        assert expected in words(browser.get(f"{AT}/{trigger}/"))


def test_the_last_runs_are_a_strip_of_their_states_with_the_latest_on_the_right(make, staff, clock):
    trigger = make(interval_seconds=600, action=None)
    for _ in range(2):
        clock.advance(600)
        evaluations.evaluate_due_triggers()
    first, last = TriggerSlot.objects.order_by("slot")
    Execution.objects.filter(pk=first.execution_id).update(state="FAILED", finished_at=first.slot)
    browser = staff(checks_csrf=False)
    page = browser.get(f"{AT}/{trigger}/").content.decode()
    strip = page.partition('<p class="strip">')[2].partition("</p>")[0]
    links = re.findall(r'href="/admin/instance/executions/([^/]+)/".*?class="slot-mark s-(\w+)"', strip, re.DOTALL)
    assert links == [(str(first.execution_id), "FAILED"), (str(last.execution_id), "RUNNING")]
    assert '<p class="strip">' not in browser.get(f"{AT}/{trigger}/?outcome=MISSED").content.decode()


def test_the_page_of_a_trigger_shows_that_its_schedule_has_ended(make, staff):
    trigger = make(end_at="2020-01-01T00:00:00Z")
    assert "The schedule has no further slot." in words(staff(checks_csrf=False).get(f"{AT}/{trigger}/"))


def test_past_slots_are_listed_with_outcomes_and_links_to_their_executions(make, staff, worker, clock):
    trigger = make(interval_seconds=600, missed="skip")
    one = worker(tags=["script"])
    clock.advance(601)
    evaluations.evaluate_due_triggers()
    one.beat()
    one.complete(one.hold(), {"fire": True})
    clock.advance(1900)
    evaluations.evaluate_due_triggers()
    fired = TriggerSlot.objects.get(outcome="FIRED")
    browser = staff(checks_csrf=False)
    page = browser.get(f"{AT}/{trigger}/").content.decode()
    assert f'href="/admin/instance/executions/{fired.execution_id}/"' in page
    listed = browser.get(f"{AT}/").content.decode()
    assert '<span class="slot-mark s-MISSED" title="MISSED, ' in listed and "FIRED" in listed
    assert f'href="/admin/instance/jobs/{fired.job_id}/"' in page
    assert page.count('id="slot-') == TriggerSlot.objects.count() == 4
    missed = browser.get(f"{AT}/{trigger}/?outcome=MISSED").content.decode()
    assert missed.count('id="slot-') == 3
    assert "FIRED" not in missed.partition('id="live"')[2].partition('id="legends"')[0]


def test_past_slots_are_paged(make, staff, clock):
    trigger = make(interval_seconds=60, missed="skip")
    clock.advance(60 * 70 + 90)
    evaluations.evaluate_due_triggers()
    browser = staff(checks_csrf=False)
    first = browser.get(f"{AT}/{trigger}/").content.decode()
    older = re.search(r'<a href="(\?before=[^"]+)">Older', first)[1]
    rest = browser.get(f"{AT}/{trigger}/{older}").content.decode()
    shown = re.findall(r'id="slot-(\d+)"', first + rest)
    assert len(shown) == len(set(shown)) == TriggerSlot.objects.count() > 50


def test_pausing_and_resuming_a_trigger_writes_an_event_and_a_log_entry(make, staff):
    trigger = make()
    browser = staff("change_trigger")
    pick = f"triggers/pause/?pick={trigger}"
    done = act(browser, pick, note="the disk is full")
    assert done["Location"] == f"{AT}/{trigger}/"
    assert (Trigger.objects.get().enabled, Trigger.objects.get().next_slot_at) == (False, None)
    page = words(browser.get(f"{AT}/{trigger}/"))
    assert all(
        word in page for word in ("PAUSED", "Resume…", "This trigger is paused", "the disk is full", "operator:ann")
    )
    assert "Pause…" not in page
    assert act(browser, f"triggers/resume/?pick={trigger}", note="").status_code == 302
    assert Trigger.objects.get().next_slot_at is not None
    events = ServerEvent.objects.filter(action="change_trigger").order_by("id")
    assert [(event.actor, event.reason) for event in events] == [
        ("operator:ann", "the disk is full"), ("operator:ann", ""),
    ]  # fmt: skip
    assert LogEntry.objects.count() == 2


def test_a_trigger_paused_by_someone_else_since_the_preview_is_a_409(make, staff):
    trigger = make()
    browser = staff("change_trigger")
    form = {"note": "n", "seen": f"{trigger} ENABLED"}
    assert browser.get(f"{AT}/pause/?pick={trigger}").status_code == 200
    Trigger.objects.update(enabled=False, next_slot_at=None)
    csrf = {"csrfmiddlewaretoken": browser.cookies["csrftoken"].value}
    assert browser.post(f"{AT}/pause/?pick={trigger}", {**form, **csrf}).status_code == 409
    assert not ServerEvent.objects.filter(actor="operator:ann").exists()


def test_all_triggers_that_match_are_paused(make, staff):
    for name in ("east one", "east two", "west"):
        make(name=name)
    browser = staff("change_trigger")
    act(browser, "triggers/pause/?all=1&q=east")
    assert [*Trigger.objects.filter(enabled=True).values_list("name", flat=True)] == ["west"]
    assert "east one" not in words(browser.get(f"{AT}/?state=ENABLED"))
    assert "matches: search north" in words(browser.get(f"{AT}/?q=north"))


def test_a_form_sent_twice_evaluates_once_and_a_running_evaluation_is_shown(make, staff):
    trigger = make()
    browser = staff("evaluate_trigger")
    address = f"triggers/evaluate/?pick={trigger}"
    page = browser.get(f"/admin/instance/{address}").content.decode()
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.partition("<main")[2]))
    for _ in range(2):
        assert browser.post(f"/admin/instance/{address}", {**form, "note": ""}).status_code == 302
        TriggerSlot.objects.update(outcome="NOT_FIRED")
    assert TriggerSlot.objects.get().by == "operator:ann"
    TriggerSlot.objects.update(outcome="EVALUATING")
    assert "already being evaluated" in words(browser.get(f"/admin/instance/{address}"))
    page = words(browser.get(f"{AT}/{trigger}/"))
    assert "An evaluation is running" in page
    assert "Evaluate now…" not in page


def test_deleting_a_trigger_leads_to_the_list_and_stays_in_the_activity(make, staff):
    trigger = make()
    browser = staff("delete_trigger")
    assert act(browser, f"triggers/delete/?pick={trigger}", note="not needed")["Location"] == f"{AT}/"
    assert not Trigger.objects.exists()
    assert browser.get(f"{AT}/{trigger}/").status_code == 404
    assert "Delete trigger trigger hourly" in words(browser.get("/admin/instance/activity/"))


def test_an_untouched_form_changes_only_the_name_that_was_typed(make, staff):
    trigger = make(cron="0 2 * * *", timezone="Europe/Zurich", tags=["b", "a"], payload="text", timeout_seconds=90)
    before = Trigger.objects.values().get()
    browser = staff("change_trigger", checks_csrf=False)
    form = fields_of(browser.get(f"{AT}/{trigger}/edit/").content.decode())
    assert (form["timeout"], form["schedule"]) == ("90s", "cron")
    done = browser.post(f"{AT}/{trigger}/edit/", {**form, "name": "nightly", "note": "a better name"})
    assert (done.status_code, done.get("Location")) == (302, f"{AT}/{trigger}/"), words(done)
    assert Trigger.objects.values().get() == {**before, "name": "nightly"}
    event = ServerEvent.objects.get(action="change_trigger")
    assert (event.actor, event.reason, event.subject_name) == ("operator:ann", "a better name", "nightly")
    assert LogEntry.objects.get().change_message == "Changed: a better name"


def test_a_schedule_goes_from_cron_to_an_interval_by_fields_alone(make, staff):
    trigger = make(cron="0 2 * * *")
    browser = staff("change_trigger", checks_csrf=False)
    form = fields_of(browser.get(f"{AT}/{trigger}/edit/").content.decode())
    browser.post(f"{AT}/{trigger}/edit/", {**form, "schedule": "interval", "every": "5m"})
    assert Trigger.objects.values_list("cron", "interval_seconds").get() == (None, 300)


def test_a_preview_of_the_form_shows_the_slots_and_stores_nothing(make, staff):
    trigger = make()
    browser = staff("change_trigger", checks_csrf=False)
    form = fields_of(browser.get(f"{AT}/{trigger}/edit/").content.decode())
    form |= {"schedule": "cron", "cron": "15 4 * * *", "timezone": "UTC", "look": "1"}
    assert words(browser.post(f"{AT}/{trigger}/edit/", form)).count("04:15:00 UTC") == 5
    assert Trigger.objects.get().cron is None
    assert not ServerEvent.objects.filter(actor="operator:ann").exists()


def test_a_trigger_changed_by_someone_else_is_a_409_and_keeps_the_change(make, staff):
    trigger = make()
    browser = staff("change_trigger", checks_csrf=False)
    form = fields_of(browser.get(f"{AT}/{trigger}/edit/").content.decode())
    Trigger.objects.update(priority=7)
    refused = browser.post(f"{AT}/{trigger}/edit/", {**form, "priority": "9"})
    assert refused.status_code == 409
    assert "The trigger was changed after you opened this form" in words(refused)
    assert Trigger.objects.get().priority == 7


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("cron", "sometimes", "cron expression"),
        ("cron", "", "This field is required"),
        ("timezone", "Mars/Olympus", "is not a time zone"),
        ("action", '{"type":\n "script",}', "line 2, column"),
        ("action", '{"type": "rocket"}', "script"),
        ("payload", '"\\u0000"', "NUL"),
        ("execution", '{"name": "x", "steps": [{"key": "a"}]}', "steps[0]"),
        ("execution", "extract: ./extract.sh\nload", "Line 2 is not a step"),
        ("execution", "a: true\na: false", "steps"),
        ("timeout", "soon", "45s, 5m"),
        ("timeout", "none", "Enter a duration"),
        ("max_retries", "-1", "greater than or equal to 0"),
        ("tags", "a\tb", "Control"),
        ("name", "", "required"),
    ],
)
def test_invalid_input_shows_an_error_beside_its_field_and_stores_nothing(staff, field, value, said):
    browser = staff("add_trigger", checks_csrf=False)
    form = fields_of(browser.get(f"{AT}/add/").content.decode())
    form |= {"name": "new", "cron": "0 2 * * *", "execution": json.dumps(EXECUTION), field: value}
    page = browser.post(f"{AT}/add/", form).content.decode()
    errors = re.search(rf'<ul class="errorlist" id="id_{field}_error">(.*?)</ul>', page, re.DOTALL)
    assert errors and said in errors[1], errors and errors[1]
    assert not Trigger.objects.exists()


def test_adding_a_trigger_needs_permission_and_a_free_name(make, staff):
    make(name="taken")
    browser = staff("add_trigger", checks_csrf=False)
    form = fields_of(browser.get(f"{AT}/add/").content.decode())
    form |= {"name": "taken", "cron": "0 2 * * *", "execution": json.dumps(EXECUTION)}
    assert "Another trigger is named" in words(browser.post(f"{AT}/add/", form))
    done = browser.post(f"{AT}/add/", {**form, "name": "new"})
    new = Trigger.objects.get(name="new")
    assert done["Location"] == f"{AT}/{new.pk}/"
    assert new.next_slot_at is not None
    assert ServerEvent.objects.get(action="create_trigger", actor="operator:ann").subject_id == str(new.pk)
    assert browser.get(f"{AT}/{new.pk}/edit/").status_code == 403


def test_a_trigger_is_added_and_changed_without_json(staff):
    browser = staff("add_trigger", "change_trigger", checks_csrf=False)
    form = fields_of(browser.get(f"{AT}/add/").content.decode())
    lines = "extract: ./extract.sh --day today\r\n\r\n load :  ./load.sh: all"
    form |= {"name": "nightly", "cron": "0 2 * * *", "action": "./is-there-news.sh", "execution": lines}
    browser.post(f"{AT}/add/", form)
    trigger = Trigger.objects.get()
    assert trigger.action == {"type": "script", "runner": "local", "command": "./is-there-news.sh"}
    [extract, load] = trigger.execution["steps"]
    assert trigger.execution["name"] == "nightly"
    assert (extract["key"], extract["action"]["command"]) == ("extract", "./extract.sh --day today")
    assert (load["key"], load["action"]["command"], load["depends_on"]) == ("load", "./load.sh: all", ["extract"])

    shown = fields_of(browser.get(f"{AT}/{trigger.pk}/edit/").content.decode())
    assert shown["action"] == "./is-there-news.sh"
    assert shown["execution"] == "extract: ./extract.sh --day today\nload: ./load.sh: all"
    browser.post(f"{AT}/{trigger.pk}/edit/", {**shown, "action": "{ ./is-there-news.sh; }"})
    assert "This is not JSON" in words(browser.post(f"{AT}/{trigger.pk}/edit/", {**shown, "action": "{ true; }"}))
    before = Trigger.objects.values().get()
    browser.post(f"{AT}/{trigger.pk}/edit/", shown)
    assert Trigger.objects.values().get()["execution"] == before["execution"]


@pytest.mark.parametrize(
    "execution",
    [
        EXECUTION,
        {"name": "hourly", "steps": [{"key": "a", "action": {**SCRIPT, "env": {"A": "1"}}}]},
        {"name": "hourly", "steps": [{"key": "a", "action": SCRIPT}, {"key": "b", "action": SCRIPT}]},
        {"name": "hourly", "steps": [{"key": "a", "action": {**SCRIPT, "command": "date\ntrue"}}]},
        {"name": "hourly", "steps": [{"key": "a", "action": {**SCRIPT, "command": ["true"]}}]},
        {"name": "hourly", "steps": [{"key": "a", "action": SCRIPT}], "timeout_seconds": 5},
    ],
    ids=["other name", "environment", "side by side", "two lines", "list", "timeout"],
)
def test_an_execution_too_complex_for_lines_is_shown_as_json_and_kept(make, staff, execution):
    trigger = make(execution=execution)
    browser = staff("change_trigger", checks_csrf=False)
    before = Trigger.objects.values("action", "execution").get()
    shown = fields_of(browser.get(f"{AT}/{trigger}/edit/").content.decode())
    assert shown["execution"].startswith("{")
    browser.post(f"{AT}/{trigger}/edit/", {**shown, "priority": "5"})
    assert Trigger.objects.get().priority == 5
    assert Trigger.objects.values("action", "execution").get() == before


def test_each_page_of_a_trigger_takes_eight_queries_at_most(make, staff, clock):
    trigger = make(interval_seconds=60)
    clock.advance(60 * 40)
    evaluations.evaluate_due_triggers()
    browser = staff("change_trigger", "add_trigger", checks_csrf=False)
    for page in ("", f"{trigger}/", f"{trigger}/?outcome=MISSED", f"{trigger}/edit/", "add/"):
        with CapturedQueries(connection) as queries:
            assert browser.get(f"{AT}/{page}").status_code == 200
        assert len(queries) <= 8, page


def test_secrets_are_masked_in_the_form_and_kept_when_it_is_sent_back(make, staff):
    action = {**SCRIPT, "env": {"DB_PASSWORD": "hush-of-action"}}
    steps = [step("a", payload={"token": "hush-of-step"})]
    trigger = make(payload={"password": "hush-of-payload"}, action=action, execution={"name": "x", "steps": steps})
    before = Trigger.objects.values("action", "payload", "execution").get()
    browser = staff("change_trigger", checks_csrf=False)
    pages = [browser.get(f"{AT}/{trigger}/{page}").content.decode() for page in ("", "edit/")]
    assert "hush" not in "".join(pages)
    assert all("***" in page for page in pages)
    done = browser.post(f"{AT}/{trigger}/edit/", {**fields_of(pages[1]), "priority": "3"})
    assert done.status_code == 302
    assert Trigger.objects.values("action", "payload", "execution").get() == before


UNUSABLE = {
    "timezone": ("Mars/Phobos", "is not a time zone of this system"),
    "cron": ("every day", "is not a cron expression"),
    "action": ({"type": "levitate"}, "Must be one of"),
    "execution": ({"name": "x", "steps": [{"key": "a"}]}, "action"),
}


@pytest.mark.parametrize("field", UNUSABLE)
def test_an_invalid_stored_trigger_shows_its_problems_and_can_be_corrected(make, staff, api, field):
    trigger = make(cron="0 2 * * *", timezone="Europe/Zurich")
    value, why = UNUSABLE[field]
    good = getattr(Trigger.objects.get(), field)
    Trigger.objects.update(**{field: value})
    browser, operator = staff("change_trigger", checks_csrf=False), api("operator")
    page = words(browser.get(f"{AT}/{trigger}/"))
    assert "This trigger cannot work here." in page and why in page
    answer = browser.get(f"{AT}/{trigger}/edit/")
    assert why in words(answer)
    for path in ("/triggers", f"/triggers/{trigger}"):
        assert operator.get(path).status_code == 200
    if field != "execution":
        evaluations.evaluate_due_triggers()  # it delays no other trigger and raises nothing
    assert operator.post(f"/triggers/{trigger}/evaluate", {}).status_code == (409 if field == "action" else 201)
    assert operator.call("PATCH", f"/triggers/{trigger}", {"enabled": False}).status_code == 200
    form = fields_of(answer.content.decode())
    mended = {"action": "true", "execution": "a: true"}.get(field, good)
    done = browser.post(f"{AT}/{trigger}/edit/", {**form, field: mended, "note": "mended"})
    assert done.status_code == 302, words(done)
    assert "This trigger cannot work here." not in words(browser.get(f"{AT}/{trigger}/"))


def test_an_unusable_schedule_is_a_409_with_the_reason_until_it_is_corrected(make, api):
    trigger, operator = make(cron="0 2 * * *"), api("operator")
    Trigger.objects.update(timezone="Mars/Phobos")
    refused = operator.call("PATCH", f"/triggers/{trigger}", {"enabled": True})
    assert (refused.status_code, refused.json()["code"]) == (409, "trigger_unusable")
    assert "Mars/Phobos" in refused.json()["detail"]
    assert operator.call("PATCH", f"/triggers/{trigger}", {"timezone": "Europe/Zurich"}).status_code == 200
