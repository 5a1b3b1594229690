"""Test that ids, events, bulk actions, filters and missing permissions reveal nothing of other namespaces."""

import uuid

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from jobs.api.sessions import operator_permissions
from jobs.models import Attempt, Batch, Trigger
from jobs.permissions import VIEWS
from liveness.models import ALL_NAMESPACES, Server, ServerEvent
from liveness.selectors.namespaces import KNOWN
from liveness.services import tokens
from tests.integration.api.test_namespace_access import NOTE, OF_ONE
from tests.integration.console.test_namespace_pages import ABOUT_INSTANCE, PAGES
from tests.integration.console.test_trigger_admin import FORM
from tests.support.http import Caller
from tests.support.namespaces import submit_as
from tests.support.people import employ

pytestmark = pytest.mark.django_db


def told(answer):
    """Return the comparable parts of a response."""
    return answer.status_code, answer.content, answer.headers.get("Content-Type")


@pytest.mark.parametrize("body", [NOTE, {"nonsense": 1}, []], ids=["good", "odd", "list"])
@pytest.mark.parametrize("kind", OF_ONE)
def test_a_foreign_id_and_an_unknown_one_are_answered_alike(of, blue, kind, body):
    unknown = blue[kind].rpartition("/")[0] + f"/{uuid.uuid4()}"
    for caller in (of("red", "operator"), of("red", "viewer"), of("red", "client"), of("default", "operator")):
        for call in OF_ONE[kind]:
            address = call.removeprefix("!")
            method = "POST" if call != address else "GET"
            suffix = f"/{address}".replace("//", "/") if address else ""
            answers = [caller.call(method, base + suffix, body) for base in (blue[kind], unknown)]
            assert told(answers[0]) == told(answers[1]), (kind, call)
            assert answers[0].status_code in (400, 403, 404), (kind, call)


@pytest.fixture
def purged(of, worker_of):
    """Return the address of the events of a purged server of blue. One has the note of an operator."""
    server = worker_of("blue", name="blue-secret").id
    of("blue", "operator").post(f"/servers/{server}/cordon", {"note": "blue-note"})
    Server.objects.filter(pk=server).delete()
    return f"/servers/{server}/events"


def test_events_of_a_purged_server_are_of_its_namespace_alone(of, purged):
    unknown = f"/servers/{uuid.uuid4()}/events"
    for namespace in ("red", "default"):
        other = of(namespace, "operator")
        assert told(other.get(purged)) == told(other.get(unknown))
        assert other.get(purged).status_code == 404
    assert "blue-note" in of("blue", "viewer").get(purged).content.decode()
    person = Caller(None)
    person.client.force_login(employ(*VIEWS.values()))
    assert "blue-note" in person.get(purged).content.decode()
    assert person.get(unknown).status_code == 404


def test_an_event_keeps_the_namespace_of_its_server_for_every_writer(worker_of):
    server = worker_of("blue").id
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into liveness_serverevent (subject_type, server_id, actor, reason) values ('server', %s, 'x', '')",
            [server],
        )
    assert set(ServerEvent.objects.filter(server_id=server).values_list("namespace", flat=True)) == {"blue"}
    ServerEvent.objects.create(subject_type="instance", actor="x", reason="")
    assert ServerEvent.objects.get(subject_type="instance").namespace is None


def test_events_without_a_namespace_are_for_who_sees_the_whole_control_plane(of, worker_of):
    old = uuid.uuid4()
    ServerEvent.objects.create(subject_type="server", server_id=old, actor="server", reason="")
    assert of("default", "viewer").get(f"/servers/{old}/events").status_code == 200
    assert of("red", "viewer").get(f"/servers/{old}/events").status_code == 404


@pytest.fixture
def batch(of):
    """Begin a batch that cancels jobs of these namespaces and does not end at once."""

    def begin(caller, *namespaces):
        clients = [of(namespace, "client") for namespace in namespaces]
        ids = [submit_as(client, unmatched="wait")["id"] for client in clients for _ in range(25 // len(clients))]
        return caller.post("/batches", {"operation": "cancel_job", "ids": ids, **NOTE}).json()["id"]

    return begin


@pytest.fixture
def person(db):
    """Sign in an operator who also has these permissions."""

    def sign_in(*names):
        caller = Caller(None)
        caller.user = employ(*VIEWS.values(), *operator_permissions(), *names)
        caller.client.force_login(caller.user)
        return caller

    return sign_in


def test_a_batch_is_seen_and_stopped_in_the_namespaces_of_its_items_alone(of, batch, person):
    everyone, default = person(), of("default", "operator")
    for begun in (batch(of("blue", "operator"), "blue"), batch(everyone, "blue"), batch(everyone, "blue", "default")):
        assert default.get(f"/batches/{begun}").status_code == 404
        assert default.post(f"/batches/{begun}/stop", NOTE).status_code == 404
        assert default.get("/batches").json()["items"] == []
        assert Batch.objects.get(pk=begun).state == "RUNNING"
        assert everyone.get(f"/batches/{begun}").status_code == 200
    mixed = begun
    assert of("blue", "operator").get(f"/batches/{mixed}").status_code == 404
    assert everyone.post(f"/batches/{mixed}/stop", NOTE).status_code == 200


def test_what_a_superuser_began_for_one_namespace_its_operator_may_stop(of, batch, person):
    begun = batch(person(), "default")
    assert of("default", "operator").post(f"/batches/{begun}/stop", NOTE).json()["state"] == "STOPPED"


def test_the_pages_of_a_batch_hold_to_the_same(of, batch, member):
    begun = batch(of("blue", "operator"), "blue")
    for name, status in (("default", 404), ("blue", 200)):
        client = member(name)
        assert client.get(f"/admin/instance/batches/{begun}/").status_code == status
        assert client.get(f"/admin/instance/batches/{begun}/stop/").status_code == status
        assert (begun in client.get("/admin/instance/batches/").content.decode()) is (status == 200)


@pytest.mark.parametrize("page", PAGES.values())
def test_a_page_names_no_namespace_that_its_reader_does_not_reach(of, blue, worker_of, member, page):
    worker_of("red")
    of("purple", "client")
    KNOWN.until = 0
    for names in (("red",), ("red", "green"), ("default",)):
        shown = member(*names).get(f"/admin/instance/{page}/?namespace=x").content.decode()
        assert "blue" not in shown and "purple" not in shown
    assert "purple" in member(sees_all=True).get(f"/admin/instance/{page}/").content.decode()


def test_whose_last_permission_for_a_namespace_is_taken_sees_nothing(of, blue, person):
    tokens.make_permissions("blue")
    caller = person("liveness.namespace:blue")
    assert caller.get(blue["job"]).status_code == 200
    caller.user.user_permissions.remove(Permission.objects.get(codename="namespace:blue"))
    for kind, address in blue.items():
        for path in (address, f"/{kind}s", f"/{kind}s?namespace=blue", f"/{kind}s?namespace=default"):
            refused = caller.get(path)
            assert (refused.status_code, refused.json()["code"]) == (403, "wrong_namespace"), path
        id = address.rpartition("/")[2]
        for path in (f"{PAGES[kind]}/", f"{PAGES[kind]}/{id}/"):
            page = caller.client.get(f"/admin/instance/{path}")
            assert page.status_code == 403 and ALL_NAMESPACES in page.content.decode(), path
    for path in (
        "",
        "batches/",
        "quarantine/",
        "triggers/add/",
        "jobs/cancel/?all=1",
        *(f"{p}/" for p in ABOUT_INSTANCE),
    ):
        assert caller.client.get(f"/admin/instance/{path}").status_code == 403, path
    assert caller.post("/jobs", {"action": {"type": "script", "command": "true"}}).status_code == 403
    assert caller.get("/instance").status_code == caller.get("/events").status_code == 403
    assert caller.client.get("/metrics").status_code in (401, 403)


def test_without_a_namespace_the_tables_of_the_admin_are_closed():
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.exclude(codename=ALL_NAMESPACES).exclude(codename__contains=":"))
    client = Client()
    client.force_login(user)
    for table in (
        "jobs/workerjob",
        "jobs/attempt",
        "jobs/execution",
        "jobs/trigger",
        "jobs/trigger/add",
        "liveness/server",
        "liveness/serverevent",
        "liveness/apitoken",
    ):
        assert client.get(f"/admin/{table}/").status_code == 403, table
    query = {"app_label": "jobs", "model_name": "attempt", "field_name": "job", "term": ""}
    assert client.get("/admin/autocomplete/", query).status_code == 403


def test_rows_of_another_namespace_have_no_history_and_no_deletion_in_the_admin(blue, worker_of, member):
    worker_of("blue", tags=["script"]).claim(limit=1)
    rows = {
        "jobs/workerjob": blue["job"].rpartition("/")[2],
        "jobs/execution": blue["execution"].rpartition("/")[2],
        "jobs/trigger": blue["trigger"].rpartition("/")[2],
        "liveness/server": blue["server"].rpartition("/")[2],
        "jobs/attempt": str(Attempt.objects.get().pk),
    }
    for client, is_own in ((member("default"), False), (member("blue"), True)):
        for table, row in rows.items():
            assert (row in client.get(f"/admin/{table}/").content.decode()) is is_own, table
            assert client.get(f"/admin/{table}/{row}/change/").status_code == (200 if is_own else 302)
            assert client.get(f"/admin/{table}/{row}/history/").status_code == (200 if is_own else 302)
            assert is_own or client.get(f"/admin/{table}/{row}/delete/").status_code in (302, 403)


def test_a_name_of_a_trigger_is_taken_in_its_namespace_alone(of, blue, member):
    steps = [{"key": "a", "action": {"type": "script", "command": "true"}}]
    fields = {
        "name": "t",
        "interval_seconds": 60,
        "action": steps[0]["action"],
        "execution": {"name": "n", "steps": steps},
    }
    assert of("blue", "operator").post("/triggers", fields).json()["code"] == "name_conflict"
    assert of("red", "operator").post("/triggers", fields).json()["namespace"] == "red"
    form = {**FORM, "name": "t"}
    for name, status in (("blue", 200), ("green", 302)):
        answer = member(name).post("/admin/jobs/trigger/add/", form)
        assert answer.status_code == status, name
        assert ("Another trigger of this namespace" in answer.content.decode()) is (status == 200)
    names = Trigger.objects.filter(name="t").order_by("namespace").values_list("namespace", flat=True)
    assert list(names) == ["blue", "green", "red"]
