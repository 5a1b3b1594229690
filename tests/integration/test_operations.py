"""What an operator does to servers and to the whole control plane: through the API, commands and the admin alike."""

import re
import uuid

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.console.actions.servers import SERVER_ACTIONS
from jobs.models import Attempt
from jobs.services import recovery
from jobs.services.liveness_check import check_liveness
from liveness.models import Brake, Instance, Server, ServerEvent
from tests.integration.test_transitions import put
from tests.support.http import Caller, Worker
from tests.support.people import viewing

ROLES = ["worker", "client", "viewer", "operator"]
ACTIONS = ["cordon", "uncordon", "drain", "undrain", "disconnect"]
CALLS = {
    **{action: ("POST", f"/servers/{{}}/{action}", {"note": "a test"}) for action in ACTIONS},
    "maintenance_enter": ("POST", "/maintenance/enter", {"note": "a test"}),
    "maintenance_exit": ("POST", "/maintenance/exit", {"note": "a test"}),
    "brake_release": ("POST", "/brake/release", {"reason": "a test"}),
    "list": ("GET", "/servers", b""),
    "detail": ("GET", "/servers/{}", b""),
}
BEFORE = {"uncordon": ["cordon"], "undrain": ["drain"], "maintenance_exit": ["maintenance_enter"]}
PERMISSIONS = {
    **{"cordon": "cordon_server", "uncordon": "cordon_server", "drain": "drain_server", "undrain": "drain_server"},
    "disconnect": "disconnect_server",
}
SERVERS = "/admin/liveness/server/"
INSTANCE = "/admin/liveness/instance/"


@pytest.fixture
def operator(api):
    """Acts as an operator: `operator("cordon", server)`; the body of the answer."""
    caller = api("operator")

    def act(name, server=None, status=200, **said):
        method, address, body = CALLS[name]
        answer = caller.call(method, address.format(server and server.id), {**body, **said} if body else body)
        assert answer.status_code == status, answer.json()
        return answer.json()

    act.caller = caller
    return act


def engage(type="WORKER"):
    return Brake.objects.create(type=type, engaged_observed=0, silent=3, alive=4)


def refusal(worker):
    answer = worker.post(f"/servers/{worker.id}/claims", {"limit": 1})
    return answer.status_code, answer.json().get("code")


def actions(**of):
    return list(ServerEvent.objects.exclude(action="").filter(**of).values_list("action", flat=True))


# Who may


@pytest.mark.parametrize("role", [*ROLES, "server", "none"])
@pytest.mark.parametrize("name", list(CALLS))
def test_only_operators_act_and_viewers_look(api, worker, name, role):
    one = worker()
    caller = {"server": one, "none": Caller(None)}.get(role) or api(role)
    for step in BEFORE.get(name, []):
        method, address, body = CALLS[step]
        assert api("operator").call(method, address.format(one.id), body).status_code == 200
    engage()
    before = ServerEvent.objects.count()
    method, address, body = CALLS[name]
    answer = caller.call(method, address.format(one.id), body)
    allowed = {"operator", "viewer"} if method == "GET" else {"operator"}
    assert answer.status_code == (200 if role in allowed else 401 if role == "none" else 403), answer.json()
    if answer.status_code != 200:
        assert ServerEvent.objects.count() == before


@pytest.mark.parametrize(
    "body",
    [{}, {"note": ""}, {"note": None}, {"note": "x" * 1001}, {"note": 1}, {"note": "\0"}, {"note": "x", "more": 1}],
    ids=str,
)
@pytest.mark.parametrize("name", [*ACTIONS, "maintenance_enter", "maintenance_exit"])
def test_an_action_needs_a_note_and_nothing_else(operator, worker, name, body):
    one = worker()
    before = ServerEvent.objects.count()
    address = CALLS[name][1].format(one.id)
    assert operator.caller.post(address, body).status_code == 400
    assert ServerEvent.objects.count() == before


def test_a_note_of_a_thousand_letters_is_kept(operator, worker):
    operator("cordon", worker(), note="x" * 1000)
    assert ServerEvent.objects.last().reason == "x" * 1000


@pytest.mark.parametrize("deadline", [-1, "5m", True, None, 1e12])
def test_a_deadline_that_is_none_is_refused(operator, worker, deadline):
    operator("drain", worker(), status=400, deadline_seconds=deadline)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_server_that_is_not_there_is_a_404(operator, name):
    missing = type("Missing", (), {"id": uuid.uuid4()})
    assert operator(name, missing, status=404)["code"] == "not_found"


# What is noted


@pytest.mark.parametrize("name", ACTIONS[:4])
def test_an_action_writes_one_event_that_changes_no_state(operator, worker, name):
    one = worker()
    for step in BEFORE.get(name, []):
        operator(step, one)
    before = ServerEvent.objects.count()
    answer = operator(name, one, note="a new disk")
    assert answer["state"] == "RUNNING"
    event = ServerEvent.objects.last()
    assert ServerEvent.objects.count() == before + 1
    assert (event.action, event.actor, event.reason) == (name, "operator:a operator", "a new disk")
    assert (str(event.server_id), event.server_name) == (one.id, "worker-1")
    assert (event.from_state, event.to_state) == ("RUNNING", "RUNNING")


def test_a_disconnect_is_a_transition_with_one_event(operator, worker):
    one = worker()
    before = ServerEvent.objects.count()
    assert operator("disconnect", one, note="it burns")["state"] == "DISCONNECTED"
    event = ServerEvent.objects.last()
    assert ServerEvent.objects.count() == before + 1
    assert (event.from_state, event.to_state, event.action) == ("RUNNING", "DISCONNECTED", "")
    assert (event.actor, event.reason) == ("operator:a operator", "it burns")
    assert one.beat().json()["code"] == "server_disconnected"


def test_maintenance_is_noted_without_a_server(operator):
    shown = operator("maintenance_enter", note="new switches")["maintenance"]
    assert (shown["by"], shown["note"]) == ("operator:a operator", "new switches")
    assert shown["since"].endswith("Z")
    assert operator("maintenance_exit", note="done") == {"maintenance": None}
    events = ServerEvent.objects.values_list("action", "server_id", "actor", "reason", "from_state", "to_state")
    assert list(events) == [
        ("maintenance_enter", None, "operator:a operator", "new switches", "", ""),
        ("maintenance_exit", None, "operator:a operator", "done", "", ""),
    ]


def test_a_released_brake_says_who_and_why(operator):
    engage(), engage("INDEXER")
    assert operator("brake_release", reason="they are gone") == {"released": ["INDEXER", "WORKER"]}
    assert set(Brake.objects.values_list("released_by", "release_reason")) == {("operator:a operator", "they are gone")}
    events = ServerEvent.objects.values_list("action", "server_id", "server_name", "reason")
    assert list(events) == [("brake_released", None, name, "they are gone") for name in ("INDEXER", "WORKER")]


def test_events_say_which_action_it_was(operator, worker, api):
    one = worker()
    operator("cordon", one)
    items = api("viewer").get(f"/servers/{one.id}/events").json()["items"]
    assert [(event["action"], event["to"]) for event in items] == [("", "RUNNING"), ("cordon", "RUNNING")]


# What does not apply now


@pytest.mark.parametrize(
    ("before", "name", "code"),
    [
        (["cordon"], "cordon", "already_cordoned"),
        (["drain"], "cordon", "already_cordoned"),
        ([], "uncordon", "not_cordoned"),
        (["cordon", "uncordon"], "uncordon", "not_cordoned"),
        (["drain"], "uncordon", "server_draining"),
        (["drain"], "drain", "server_draining"),
        ([], "undrain", "not_draining"),
        (["cordon"], "undrain", "not_draining"),
        (["drain", "undrain"], "uncordon", "not_cordoned"),
        (["disconnect"], "disconnect", "illegal_transition"),
        (["maintenance_enter"], "maintenance_enter", "already_in_maintenance"),
        ([], "maintenance_exit", "not_in_maintenance"),
        ([], "brake_release", "brake_not_engaged"),
    ],
)
def test_what_does_not_apply_now_is_refused_with_the_present_state(operator, worker, before, name, code):
    one = worker()
    for step in before:
        operator(step, one)
    count, seen = ServerEvent.objects.count(), Server.objects.values().get()
    answer = operator(name, one, status=409)
    assert answer["code"] == code
    assert answer["detail"]
    if name in ACTIONS:
        assert answer["state"] == seen["state"]
    assert ServerEvent.objects.count() == count
    assert Server.objects.values().get() == seen


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("state", ["ERROR", "DISCONNECTED", "TERMINATING", "TERMINATED_FORCED", "NOT_RUNNING"])
def test_a_server_that_is_not_alive_is_left_alone(operator, worker, name, state):
    one = worker()
    put(Server.objects.get(), state)
    answer = operator(name, one, status=409)
    code = "illegal_transition" if name == "disconnect" else "server_not_alive"
    assert (answer["code"], answer["state"]) == (code, state)


@pytest.mark.parametrize("state", ["CREATED", "RUNNING", "MAINTENANCE"])
@pytest.mark.parametrize("name", ["cordon", "drain", "disconnect"])
def test_every_server_alive_can_be_acted_on(operator, api, name, state):
    one = Worker.register(api("worker"))
    put(Server.objects.get(), state)
    operator(name, one)


def test_a_released_brake_is_not_released_again(operator):
    engage()
    operator("brake_release")
    assert operator("brake_release", status=409)["code"] == "brake_not_engaged"


# What it means to work


@pytest.mark.parametrize(
    ("name", "undo", "code"),
    [
        ("cordon", "uncordon", "server_cordoned"),
        ("drain", "undrain", "server_cordoned"),
        ("maintenance_enter", "maintenance_exit", "maintenance"),
    ],
)
def test_new_work_stays_away_while_running_work_completes_until_it_is_undone(
    operator, worker, submit, name, undo, code
):
    first, second = submit(), submit()
    one = worker()
    attempt = one.hold()
    operator(name, one)
    assert refusal(one) == (409, code)
    assert one.complete(attempt, 42)["accepted"]
    assert submit.client.get(f"/jobs/{first['id']}").json()["output"] == 42
    submit()  # submissions queue
    assert refusal(one) == (409, code)
    operator(undo, one)
    assert one.hold()["job"]["id"] == second["id"]


def test_an_operators_cordon_takes_the_place_of_a_servers_own_and_only_he_lifts_it(operator, worker, submit):
    submit()
    one = worker()
    one.beat(schedulable=False, reason="disk full")
    operator("cordon", one, note="look into it")
    one.beat(schedulable=True)
    assert refusal(one) == (409, "server_cordoned")
    operator("uncordon", one)
    assert len(one.claim()) == 1


def test_an_operator_lifts_a_servers_own_cordon(operator, worker, submit):
    submit()
    one = worker()
    one.beat(schedulable=False, reason="disk full")
    operator("uncordon", one)
    assert len(one.claim()) == 1


def test_a_cordoned_server_can_be_drained_and_undrain_lifts_both(operator, worker, submit):
    submit()
    one = worker()
    operator("cordon", one)
    operator("drain", one)
    operator("undrain", one)
    assert Server.objects.values_list("cordoned_by", "cordon_reason", "drain_deadline", "drain_held").get() == (
        None, "", None, None,
    )  # fmt: skip
    assert len(one.claim()) == 1


def test_a_worker_hears_it_in_its_next_heartbeat_in_one_statement(operator, worker, submit):
    one = worker()

    def heard():
        with CaptureQueriesContext(connection) as queries:
            answer = one.beat().json()
        assert len(queries) == 1
        return answer["cordoned"], answer["maintenance"], answer["drain"]

    assert heard() == (False, False, None)
    operator("maintenance_enter")
    assert heard() == (False, True, None)
    operator("maintenance_exit")
    operator("cordon", one)
    assert heard() == (True, False, None)
    shown = operator("drain", one)
    assert heard() == (True, False, {"deadline": shown["drain"]["deadline"]})
    assert shown["drain"]["deadline"].endswith("Z")
    operator("undrain", one)
    assert heard() == (False, False, None)


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED_GRACEFULLY"])
def test_a_drained_worker_that_ends_is_answered(operator, worker, state):
    one = worker()
    operator("drain", one)
    operator("maintenance_enter")
    answer = one.beat(state=state)
    assert (answer.status_code, answer.json()["state"]) == (200, state)
    assert one.beat(state=state).status_code == 200


@pytest.mark.parametrize(("said", "seconds"), [({}, 300), ({"deadline_seconds": 60}, 60), ({"deadline_seconds": 0}, 0)])
def test_a_drain_lasts_as_long_as_it_was_given_or_the_grace_period(operator, worker, submit, said, seconds):
    submit(), submit()
    one = worker()
    one.hold(), one.hold(running=False)
    shown = operator("drain", one, **said)
    assert (shown["cordoned"], shown["drain"]["held_at_start"]) == (True, 2)
    with connection.cursor() as cursor:
        cursor.execute(
            "select extract(epoch from drain_deadline - clock_timestamp())::float8,"
            " drain_until_observed - observed_now() from liveness_server"
        )
        left = cursor.fetchone()
    assert left == pytest.approx((seconds, seconds), abs=2)


@pytest.mark.parametrize("running", [True, False])
def test_what_a_drained_server_still_holds_a_timeout_after_its_deadline_is_recovered_though_it_is_alive(
    operator, worker, submit, clock, running
):
    job = submit()
    one = worker()
    attempt = one.hold(running=running)
    operator("drain", one, deadline_seconds=60)
    clock.advance(102)
    one.beat()
    assert recovery.recover_attempts() == {}
    clock.advance(4)
    one.beat()
    assert recovery.recover_attempts() == {"RESUBMITTED" if running else "REQUEUED": 1}
    job = submit.client.get(f"/jobs/{job['id']}").json()
    assert (job["state"], job["timeline"][-1]["reason"]) == ("PENDING", "drain deadline passed")
    assert one.beat(claimed=[attempt["id"]]).json()["lost"] == [attempt["id"]]
    assert one.complete(attempt)["code"] == "attempt_superseded"
    assert Server.objects.get().state == "RUNNING"


def test_a_drained_server_that_may_not_have_heard_of_it_is_recovered_only_as_one_that_is_lost(
    operator, worker, submit, clock
):
    submit()
    one = worker()
    one.hold()
    operator("drain", one, deadline_seconds=1)
    clock.advance(47)
    assert recovery.recover_attempts() == {}


def test_running_attempts_stay_with_a_drained_server_whose_strategy_is_never(operator, worker, submit, clock):
    submit(), submit()
    one = worker(config={"worker_task_restart_strategy": "NEVER"})
    running, claimed = one.hold(), one.hold(running=False)
    operator("drain", one, deadline_seconds=0)
    clock.advance(46)
    one.beat()
    assert recovery.recover_attempts() == {"REQUEUED": 1}
    assert Attempt.objects.get(pk=running["id"]).state == "RUNNING"
    assert Attempt.objects.get(pk=claimed["id"]).state == "REQUEUED"


def test_an_undrained_server_keeps_what_it_holds(operator, worker, submit, clock):
    submit()
    one = worker()
    one.hold()
    operator("drain", one, deadline_seconds=0)
    operator("undrain", one)
    clock.advance(1000)
    one.beat()
    assert recovery.recover_attempts() == {}


@pytest.mark.parametrize("name", ["cordon", "drain", "maintenance_enter"])
def test_none_of_it_counts_as_dead(operator, worker, clock, name):
    one = worker()
    operator(name, one)
    for _ in range(5):
        clock.advance(20)
        one.beat()
        check_liveness()
    assert Server.objects.get().state == "RUNNING"


def test_a_running_job_of_a_disconnected_server_does_not_move_at_once_but_a_claimed_one_does(operator, worker, submit):
    submit(), submit()
    one = worker()
    one.hold(), one.hold(running=False)
    operator("disconnect", one)
    assert recovery.recover_attempts() == {"REQUEUED": 1}


# The list


@pytest.fixture
def listed(api, worker):
    """Names of the servers that `GET /servers` answers with."""
    worker(name="alpha", cluster="east", hostname="box-1", tags=["gpu"])
    worker(name="beta", cluster="west", hostname="box-2").beat(state="TERMINATING")
    worker(name="gamma", cluster="west", tags=["gpu", "python"])
    viewer = api("viewer")
    return lambda query="": [server["name"] for server in viewer.get(f"/servers{query}").json()["items"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["gamma", "beta", "alpha"]),
        ("?cluster=west", ["gamma", "beta"]),
        ("?state=TERMINATING", ["beta"]),
        ("?type=WORKER&tag=gpu", ["gamma", "alpha"]),
        ("?type=INDEXER", []),
        ("?search=LPH", ["alpha"]),
        ("?search=box-", ["beta", "alpha"]),
        ("?cluster=west&tag=gpu&search=a", ["gamma"]),
        ("?search=%25", []),
    ],
)
def test_servers_are_listed_latest_first_and_by_what_is_asked(listed, query, found):
    assert listed(query) == found


def test_a_server_is_found_by_the_beginning_of_its_id(listed):
    server = Server.objects.get(name="beta")
    assert listed(f"?search={str(server.pk).upper()}") == ["beta"]


def test_the_list_is_read_a_page_at_a_time(listed, api):
    viewer, seen, cursor = api("viewer"), [], ""
    while True:
        page = viewer.get(f"/servers?limit=1{cursor}").json()
        seen += [server["name"] for server in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == ["gamma", "beta", "alpha"]


def test_an_item_of_the_list_is_the_server(listed, api, operator):
    server = Server.objects.get(name="gamma")
    operator("drain", type("One", (), {"id": server.pk}))
    viewer = api("viewer")
    (item,), one = viewer.get("/servers?search=gamma").json()["items"], viewer.get(f"/servers/{server.pk}").json()
    item["next_transition"].pop("at"), one["next_transition"].pop("at")  # told anew at each read
    assert item == one


@pytest.mark.parametrize(
    "query", ["?limit=0", "?limit=501", "?limit=x", "?state=ALIVE", "?type=x", "?cursor=1", "?colour=red", "?tag=%00"]
)
def test_what_the_list_does_not_understand_it_refuses(api, query):
    assert api("viewer").get(f"/servers{query}").status_code == 400


# Commands


@pytest.fixture
def run(db, capsys, monkeypatch):
    """Runs a command as the user ann; what it printed."""
    monkeypatch.setenv("LOGNAME", "ann")

    def run(*words):
        call_command(*words)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("by", ["id", "name"])
@pytest.mark.parametrize("name", ACTIONS)
def test_a_command_does_what_the_call_does_and_says_so(run, operator, worker, name, by):
    one = worker()
    for step in BEFORE.get(name, []):
        operator(step, one)
    before = ServerEvent.objects.count()
    said = run(name, one.id if by == "id" else "worker-1", "--note", "a new disk")
    assert said.startswith(f"worker-1 ({one.id}, ")
    event = ServerEvent.objects.last()
    assert ServerEvent.objects.count() == before + 1
    assert (event.actor, event.reason) == ("operator:ann", "a new disk")
    assert event.action == ("" if name == "disconnect" else name)


def test_drain_takes_its_deadline_as_people_write_it(run, worker):
    worker()
    run("drain", "worker-1", "--deadline", "5m")
    assert Server.objects.get().drain_deadline is not None
    with pytest.raises(CommandError, match="is not a duration"):
        run("drain", "worker-1", "--deadline", "soon")


def test_a_command_says_why_it_was_refused(run, worker):
    one = worker()
    with pytest.raises(CommandError, match="is not cordoned"):
        run("uncordon", one.id)
    with pytest.raises(CommandError, match="is not in maintenance"):
        run("maintenance", "exit")
    with pytest.raises(CommandError, match="nothing to release"):
        run("release_brake")


def test_a_command_acts_on_no_server_that_it_may_have_mistaken(run, worker):
    first, second = worker(), worker()
    with pytest.raises(CommandError, match=f"{first.id}, {second.id}"):
        run("cordon", "worker-1")
    with pytest.raises(CommandError, match="No server"):
        run("cordon", "worker-2")
    with pytest.raises(CommandError, match="No server"):
        run("cordon", str(uuid.uuid4()))
    second.beat(state="TERMINATING")
    run("cordon", "worker-1")
    assert Server.objects.exclude(cordoned_by=None).get().pk == uuid.UUID(first.id)


def test_maintenance_and_brake_have_commands(run):
    engage(), engage("INDEXER")
    assert run("maintenance", "enter", "--note", "new switches") == "in maintenance\n"
    assert Instance.objects.get().maintenance_note == "new switches"
    assert run("maintenance", "exit") == "not in maintenance any more\n"
    assert run("release_brake", "--type", "worker", "--reason", "gone") == "released: WORKER\n"
    assert run("release_brake") == "released: INDEXER\n"
    assert actions(actor="operator:ann") == ["maintenance_enter", "maintenance_exit", *["brake_released"] * 2]


# The admin


@pytest.fixture
def staff(db):
    """Signs in staff with permissions: `staff("cordon_server")`; CSRF is enforced."""

    def sign_in(*codenames):
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(viewing(*codenames))
        client = Client(enforce_csrf_checks=True)
        client.force_login(user)
        return client

    return sign_in


def token_in(page):
    return re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[1]


def offered(client):
    return set(re.findall(r'<option value="(\w+)"', client.get(SERVERS).content.decode())) & set(ACTIONS)


def choose(client, name, *servers):
    """The page to which the admin's action leads: its address, what it shows, and what its form would send."""
    csrf = token_in(client.get(SERVERS).content.decode())
    chosen = {"action": name, "_selected_action": [server.id for server in servers], "csrfmiddlewaretoken": csrf}
    answer = client.post(SERVERS, {**chosen, "index": "0"}, follow=True)
    ((address, _),) = answer.redirect_chain
    page = answer.content.decode().partition('<form class="confirm"')[2]
    form = {"csrfmiddlewaretoken": token_in(page), "seen": re.findall(r'name="seen" value="([^"]*)"', page)}
    return address, answer.content.decode(), form


def said(answer):
    return re.findall(r'<li class="(success|warning|error)">([^<]+)</li>', answer.content.decode())


@pytest.mark.parametrize("name", ACTIONS)
def test_the_admin_shows_what_would_happen_and_does_it_when_confirmed(staff, operator, worker, name):
    one, other = worker(name="one"), worker(name="other")
    for step in BEFORE.get(name, []):
        operator(step, one)
        operator(step, other)
    before = ServerEvent.objects.count()
    client = staff(PERMISSIONS[name])
    address, page, form = choose(client, name, one, other)
    assert ">one<" in page and ">other<" in page and "What would happen" in page
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page)
    assert (ServerEvent.objects.count(), LogEntry.objects.count()) == (before, 0)

    answer = client.post(address, {**form, "note": "a new disk"}, follow=True)
    assert [level for level, _ in said(answer)] == ["success"]
    events = ServerEvent.objects.order_by("-id")[:2]
    assert ServerEvent.objects.count() == before + 2
    assert {(event.actor, event.reason) for event in events} == {("operator:ann", "a new disk")}
    assert {entry.object_id for entry in LogEntry.objects.all()} == {one.id, other.id}
    assert {entry.change_message for entry in LogEntry.objects.all()} == {f"{SERVER_ACTIONS[name].label}: a new disk"}


@pytest.mark.parametrize("note", ["", "x" * 1001])
def test_the_admin_does_nothing_without_a_note(staff, worker, note):
    one = worker()
    client = staff("cordon_server")
    address, _, form = choose(client, "cordon", one)
    assert "errorlist" in client.post(address, {**form, "note": note}).content.decode()
    assert not actions() and not LogEntry.objects.exists()


def test_the_admin_wants_the_csrf_token(staff, worker):
    one = worker()
    client = staff("cordon_server", "change_maintenance")
    address, _, form = choose(client, "cordon", one)
    del form["csrfmiddlewaretoken"]
    assert client.post(address, {**form, "note": "x"}).status_code == 403
    assert client.post(f"{INSTANCE}enter/", {"note": "x"}).status_code == 403
    assert not actions()


@pytest.mark.parametrize("held", [*sorted(set(PERMISSIONS.values())), None])
def test_the_admin_offers_and_does_only_what_one_may(staff, worker, held):
    one = worker()
    client = staff(*[held] if held else [])
    mine = {name for name, codename in PERMISSIONS.items() if codename == held}
    assert offered(client) == mine
    csrf = {"csrfmiddlewaretoken": client.cookies["csrftoken"].value}
    for name in set(ACTIONS) - mine:
        address = f"/admin/instance/servers/{name}/?pick={one.id}"
        assert client.get(address).status_code == 403
        assert client.post(address, {"seen": f"{one.id} RUNNING", "note": "x", **csrf}).status_code == 403
    assert not actions() and not ServerEvent.objects.filter(to_state="DISCONNECTED").exists()


def test_the_admin_acts_on_each_server_for_itself_and_says_what_was_refused(staff, operator, worker):
    one, other, third = worker(name="one"), worker(name="other"), worker(name="third")
    operator("cordon", one)
    client = staff("cordon_server")
    address, page, form = choose(client, "cordon", one, other, third)
    assert "This server is cordoned already" in page
    third.beat(state="TERMINATING")
    answer = client.post(address, {**form, "note": "x"}, follow=True)
    assert sorted(said(answer)) == [
        ("success", "Cordon: done to 1 server."),
        ("warning", "Not done: one: This server is cordoned already, by operator:a operator."),
        ("warning", "Not done: third: It was RUNNING when you looked and is TERMINATING now: look again."),
    ]
    assert LogEntry.objects.get().object_id == other.id
    assert actions(server_id=other.id) == ["cordon"]


def test_the_admin_drains_with_a_deadline(staff, worker):
    one = worker()
    client = staff("drain_server")
    address, page, form = choose(client, "drain", one)
    assert 'name="deadline"' in page
    refused = client.post(address, {**form, "note": "x", "deadline": "soon"})
    assert "is not a duration" in refused.content.decode()
    client.post(address, {**form, "note": "x", "deadline": "5m"})
    assert Server.objects.get().drain_deadline is not None


@pytest.mark.parametrize(
    ("name", "permission", "action"),
    [
        ("enter", "change_maintenance", "maintenance_enter"),
        ("exit", "change_maintenance", "maintenance_exit"),
        ("release", "release_brake", "brake_released"),
    ],
)
def test_the_admin_has_a_page_for_maintenance_and_the_brake(staff, operator, name, permission, action):
    engage()
    if name == "exit":
        operator("maintenance_enter")
    client = staff(permission)
    assert f'href="{INSTANCE}{name}/"' in client.get(INSTANCE).content.decode()
    page = client.get(f"{INSTANCE}{name}/").content.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page)
    form = {"csrfmiddlewaretoken": token_in(page)}
    assert "errorlist" in client.post(f"{INSTANCE}{name}/", {**form, "note": ""}).content.decode()
    assert not actions(actor="operator:ann")
    answer = client.post(f"{INSTANCE}{name}/", {**form, "note": "new switches"}, follow=True)
    assert [level for level, _ in said(answer)] == ["success"]
    assert actions(actor="operator:ann", reason="new switches") == [action]
    assert LogEntry.objects.get().change_message.endswith(": new switches")
    again = client.post(f"{INSTANCE}{name}/", {**form, "note": "again"}, follow=True)
    assert [level for level, _ in said(again)] == ["error"]
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize(("held", "pages"), [("change_maintenance", {"", "enter/", "exit/"}), (None, set())])
def test_maintenance_and_brake_are_for_those_who_may(staff, held, pages):
    client = staff(*[held] if held else [])
    for page in ("", "enter/", "exit/", "release/"):
        assert client.get(f"{INSTANCE}{page}").status_code == (200 if page in pages else 403), page
    assert (f'href="{INSTANCE}"' in client.get("/admin/").content.decode()) == bool(held)


def test_the_instance_pages_tell_of_every_action(admin_client, operator, worker):
    one = worker()
    for name in ("cordon", "uncordon", "drain", "undrain", "maintenance_enter", "maintenance_exit"):
        operator(name, one, note=f"why {name}")
    engage()
    operator("brake_release", reason="why brake_release")
    seen = admin_client.get("/admin/instance/").content.decode()
    for name in ("cordon", "uncordon", "drain", "undrain", "maintenance_enter", "maintenance_exit", "brake_release"):
        assert f"why {name}" in seen
    assert admin_client.get(f"/admin/instance/servers/{one.id}/").status_code == 200
