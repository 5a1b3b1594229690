"""A cordon or a drain that ends by itself."""

import pytest
from django.core.management import call_command

from jobs.services.liveness_check import check_liveness
from liveness.models import Server, ServerEvent

UNDONE = {"cordon": "uncordon", "drain": "undrain"}


def events(server):
    some = ServerEvent.objects.filter(server_id=server.id).exclude(action="").order_by("pk")
    return list(some.values_list("action", "actor", "reason"))


@pytest.mark.parametrize("action", UNDONE)
def test_after_its_time_the_next_check_gives_it_work_again(operator, worker, submit, clock, action):
    one = worker()
    shown = operator(action, one, note="a new disk", duration_seconds=60)
    assert shown["cordoned"] and shown["cordon_until"] is not None
    submit()
    clock.advance(59)
    one.beat()
    check_liveness()
    assert one.beat().json()["cordoned"] is True
    clock.advance(1)
    one.beat()
    check_liveness()
    heard = one.beat().json()
    assert (heard["cordoned"], heard["drain"]) == (False, None)
    assert len(one.claim()) == 1
    assert events(one) == [
        (action, "operator:a operator", "a new disk"), (UNDONE[action], "liveness", "it expired"),
    ]  # fmt: skip
    check_liveness()
    assert len(events(one)) == 2


@pytest.mark.parametrize("action", UNDONE)
def test_without_a_time_it_lasts_until_somebody_ends_it(operator, worker, clock, action):
    one = worker()
    assert operator(action, one)["cordon_until"] is None
    clock.advance(10**6)
    one.beat()
    check_liveness()
    assert Server.objects.get().cordoned_by is not None


@pytest.mark.parametrize("action", UNDONE)
def test_what_somebody_ends_before_its_time_does_not_end_again(operator, worker, clock, action):
    one = worker()
    operator(action, one, duration_seconds=60)
    operator(UNDONE[action], one)
    operator(action, one)
    clock.advance(61)
    one.beat()
    check_liveness()
    assert len(events(one)) == 3 and Server.objects.get().cordoned_by is not None


@pytest.mark.parametrize("action", UNDONE)
def test_commands_and_pages_take_a_time_with_presets(staff, worker, action):
    one, other = worker(name="one"), worker(name="other")
    call_command(action, one.id, "--for", "2h")
    client = staff(f"{action}_server", checks_csrf=False)
    address = f"/admin/instance/servers/{action}/?pick={other.id}"
    page = client.get(address).content.decode()
    assert 'name="duration"' in page and '<option value="24h">' in page
    client.post(address, {"seen": f"{other.id} RUNNING", "duration": "2h", "note": ""})
    assert Server.objects.filter(cordon_until__isnull=False).count() == 2
    assert "It gets work again in" in client.get(f"/admin/instance/servers/{other.id}/").content.decode()


@pytest.mark.parametrize("action", UNDONE)
def test_many_are_kept_from_work_for_a_time_by_one_call(api, worker, action):
    body = {"operation": f"{action}_server", "ids": [worker().id, worker().id], "note": "x", "duration_seconds": 60}
    assert api("operator").post("/batches", body).status_code == 201
    assert Server.objects.filter(cordon_until__isnull=False).count() == 2
    wrong = api("operator").post("/batches", {**body, "operation": f"{UNDONE[action]}_server"})
    assert wrong.json()["errors"] == {"duration_seconds": ["Only cordon_server and drain_server may have this field."]}
