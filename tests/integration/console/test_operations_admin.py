"""Test actions of operators on servers and on the whole control plane, from the admin."""

import re

import pytest
from django.contrib.admin.models import LogEntry

from controlplane.console.actions.servers import SERVER_ACTIONS
from liveness.models import Server, ServerEvent
from tests.support.operators import ACTIONS, BEFORE, actions, engage

PERMISSIONS = {
    **{"cordon": "cordon_server", "uncordon": "cordon_server", "drain": "drain_server", "undrain": "drain_server"},
    "disconnect": "disconnect_server",
}
SERVERS = "/admin/liveness/server/"


def token_in(page):
    return re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[1]


def offered(client):
    return set(re.findall(r'<option value="(\w+)"', client.get(SERVERS).content.decode())) & set(ACTIONS)


def choose(client, name, *servers):
    """Follow an admin action to its page: return its address, its content and the data of its form."""
    csrf = token_in(client.get(SERVERS).content.decode())
    chosen = {"action": name, "_selected_action": [server.id for server in servers], "csrfmiddlewaretoken": csrf}
    answer = client.post(SERVERS, {**chosen, "index": "0"}, follow=True)
    ((address, _),) = answer.redirect_chain
    page = answer.content.decode().partition('<form class="confirm"')[2]
    form = {"csrfmiddlewaretoken": token_in(page), "seen": re.findall(r'name="seen" value="([^"]*)"', page)}
    return address, answer.content.decode(), form


def messages_of(answer):
    return re.findall(r'<li class="(success|warning|error)">([^<]+)</li>', answer.content.decode())


@pytest.mark.parametrize("name", ACTIONS)
def test_the_admin_shows_the_effect_and_acts_after_confirmation(staff, operator, worker, name):
    one, other = worker(name="one"), worker(name="other")
    for step in BEFORE.get(name, []):
        operator(step, one)
        operator(step, other)
    before = ServerEvent.objects.count()
    client = staff(PERMISSIONS[name])
    address, page, form = choose(client, name, one, other)
    assert ">one<" in page and ">other<" in page and "Effect" in page
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page)
    assert (ServerEvent.objects.count(), LogEntry.objects.count()) == (before, 0)

    answer = client.post(address, {**form, "note": "a new disk"}, follow=True)
    assert [level for level, _ in messages_of(answer)] == ["success"]
    events = ServerEvent.objects.order_by("-id")[:2]
    assert ServerEvent.objects.count() == before + 2
    assert {(event.actor, event.reason) for event in events} == {("operator:ann", "a new disk")}
    assert {entry.object_id for entry in LogEntry.objects.all()} == {one.id, other.id}
    assert {entry.change_message for entry in LogEntry.objects.all()} == {f"{SERVER_ACTIONS[name].label}: a new disk"}


@pytest.mark.parametrize(("name", "note"), [("disconnect", ""), ("disconnect", "x" * 1001), ("cordon", "x" * 1001)])
def test_the_admin_does_nothing_with_too_long_a_note_and_nothing_grave_without_one(staff, worker, name, note):
    one = worker()
    client = staff(PERMISSIONS[name])
    address, _, form = choose(client, name, one)
    assert "errorlist" in client.post(address, {**form, "note": note}).content.decode()
    assert not actions() and not LogEntry.objects.exists()


def test_what_can_be_undone_needs_no_note(staff, worker):
    one = worker()
    client = staff("cordon_server")
    address, _, form = choose(client, "cordon", one)
    client.post(address, {**form, "note": ""})
    assert actions(server_id=one.id) == ["cordon"]


def test_the_admin_wants_the_csrf_token(staff, worker):
    one = worker()
    client = staff("cordon_server")
    address, _, form = choose(client, "cordon", one)
    del form["csrfmiddlewaretoken"]
    assert client.post(address, {**form, "note": "x"}).status_code == 403
    assert not actions()


@pytest.mark.parametrize("held", [*sorted(set(PERMISSIONS.values())), None])
def test_the_admin_offers_and_performs_only_permitted_actions(staff, worker, held):
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


def test_the_admin_acts_on_each_server_separately_and_reports_refusals(staff, operator, worker):
    one, other, third = worker(name="one"), worker(name="other"), worker(name="third")
    operator("cordon", one)
    client = staff("cordon_server")
    address, page, form = choose(client, "cordon", one, other, third)
    assert "The server is already cordoned" in page
    third.beat(state="TERMINATING")
    answer = client.post(address, {**form, "note": "x"}, follow=True)
    assert sorted(messages_of(answer)) == [
        ("success", "Cordoned: 1 server."),
        ("warning", "Not done: one: The server is already cordoned by operator:a operator."),
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


def test_the_instance_pages_show_every_action(admin_client, operator, worker):
    one = worker()
    for name in ("cordon", "uncordon", "drain", "undrain", "maintenance_enter", "maintenance_exit"):
        operator(name, one, note=f"why {name}")
    engage()
    operator("brake_release", reason="why brake_release")
    page = admin_client.get("/admin/instance/").content.decode()
    for name in ("cordon", "uncordon", "drain", "undrain", "maintenance_enter", "maintenance_exit", "brake_release"):
        assert f"why {name}" in page
    assert admin_client.get(f"/admin/instance/servers/{one.id}/").status_code == 200
