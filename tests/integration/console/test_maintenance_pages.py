"""Pages of maintenance and of the brake: current state, actions and history."""

import re

import pytest
from django.contrib.admin.models import LogEntry

from liveness.models import Brake, ClusterMaintenance, Instance, ServerEvent
from tests.integration.console.test_page_actions import words
from tests.support.operators import actions, engage

pytestmark = pytest.mark.django_db

PAGES = "/admin/instance/"
MAINTENANCE, BRAKE = f"{PAGES}maintenance/", f"{PAGES}brake/"


def messages_of(answer):
    return re.findall(r'<li class="(success|warning|error)">([^<]+)</li>', answer.content.decode())


def row(page, id):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.partition(f'id="{id}"')[2].partition("</tr>")[0]))


def test_without_any_history_the_page_explains_maintenance(reader):
    page = words(reader.get(MAINTENANCE))
    assert "In maintenance, workers get no new work" in page
    assert "No maintenance yet. Its starts and ends will be listed here" in page
    assert "Enter…" not in page


def test_each_cluster_has_a_row_with_its_maintenance(staff, operator, worker):
    worker(name="a", cluster="eu")
    worker(name="b", cluster="us")
    operator("maintenance_enter", note="new switches", cluster="eu", duration_seconds=3600)
    client = staff("change_maintenance", checks_csrf=False)
    page = client.get(MAINTENANCE).content.decode()
    assert "MAINTENANCE" in row(page, "scope-eu") and "operator:a operator: new switches" in row(page, "scope-eu")
    assert re.search(r"in (1 h|59 min)", row(page, "scope-eu"))
    assert "IN SERVICE" in row(page, "scope-us") and "IN SERVICE" in row(page, "scope-")
    assert f'{MAINTENANCE}exit/?cluster=eu"' in page and f'{MAINTENANCE}enter/?cluster=us"' in page
    operator("maintenance_enter")
    assert "no new work" in row(client.get(MAINTENANCE).content.decode(), "scope-us")


@pytest.mark.parametrize("cluster", ["", "eu"])
def test_maintenance_starts_for_a_duration_and_ends_without_a_note(staff, worker, cluster):
    worker(cluster="eu")
    client = staff("change_maintenance", checks_csrf=False)
    query = f"?cluster={cluster}" if cluster else ""
    page = client.get(f"{MAINTENANCE}enter/{query}").content.decode()
    assert 'value="1h"' in page and 'value="24h"' in page and "Note (optional)" in page
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page)
    assert not actions()
    answer = client.post(f"{MAINTENANCE}enter/{query}", {"duration": "2h", "note": "disks"}, follow=True)
    assert messages_of(answer) == [("success", "Enter maintenance: done.")]
    in_force = ClusterMaintenance.objects.get() if cluster else Instance.objects.get()
    since, until = (in_force.since, in_force.until) if cluster else (
        in_force.maintenance_since, in_force.maintenance_until,
    )  # fmt: skip
    assert (until - since).total_seconds() == pytest.approx(7200, abs=1)
    again = client.post(f"{MAINTENANCE}enter/{query}", {"duration": "2h", "note": "again"})
    assert again.status_code == 409 and "has been in maintenance since" in words(again)
    client.post(f"{MAINTENANCE}exit/{query}", {"note": ""})
    assert actions(actor="operator:ann") == ["maintenance_enter", "maintenance_exit"]
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        "Enter maintenance: disks", "Exit maintenance",
    ]  # fmt: skip
    history = words(client.get(MAINTENANCE)).partition("History")[2]
    assert "Maintenance enter" in history and "disks" in history and "operator:ann" in history


@pytest.mark.parametrize("duration", ["soon", "0", "-1"])
def test_an_invalid_duration_starts_nothing(staff, duration):
    answer = staff("change_maintenance", checks_csrf=False).post(f"{MAINTENANCE}enter/", {"duration": duration})
    assert "errorlist" in answer.content.decode() and not actions()


def test_without_a_duration_it_lasts_until_somebody_ends_it(staff):
    staff("change_maintenance", checks_csrf=False).post(f"{MAINTENANCE}enter/", {"duration": ""})
    assert Instance.objects.get().maintenance_until is None and Instance.objects.get().maintenance_since


def test_an_unknown_cluster_is_an_error_and_nothing_starts(staff, worker):
    worker(cluster="eu")
    client = staff("change_maintenance", checks_csrf=False)
    answer = client.post(f"{MAINTENANCE}enter/?cluster=ue", {"duration": "1h"})
    assert "No server of the cluster ue is known" in words(answer) and not actions()
    assert "No server of cluster ue is registered" in words(client.get(f"{MAINTENANCE}?cluster=ue"))


@pytest.mark.parametrize("name", ["eu", "e" * 255])
def test_the_page_of_one_cluster_shows_only_this_cluster(reader, operator, worker, name):
    worker(name="a", cluster=name)
    worker(name="b", cluster="us")
    operator("maintenance_enter", note="of eu", cluster=name)
    operator("maintenance_enter", note="of us", cluster="us")
    page = words(reader.get(f"{MAINTENANCE}?cluster={name}")).partition("Current state")[2]
    assert "of eu" in page and "of us" not in page


def test_an_engaged_brake_is_shown_with_the_time_of_its_release(staff, api):
    engage()
    page = staff("release_brake", checks_csrf=False).get(BRAKE).content.decode()
    shown = row(page, f"brake-{Brake.objects.get().pk}")
    assert (
        "HOLDS" in shown and "3 of 4" in shown and "the brake starts to release the others" in shown
    ) or "releases 10 %" in shown
    assert f'{BRAKE}release/?type=WORKER&amp;namespace=default"' in page


def test_the_brake_of_a_cluster_is_not_confused_with_a_similar_name_or_a_type(reader, worker):
    for name in ("eu", "test/eu", "WORKER"):
        worker(cluster=name)
    engage()
    Brake.objects.create(type="WORKER", cluster="test/eu", engaged_observed=0, silent=3, alive=4)
    ServerEvent.objects.create(
        subject_type="brake", subject_id="WORKER/test/eu", action="brake_engaged", actor="liveness"
    )
    for name, held in (("eu", False), ("WORKER", False), ("test/eu", True)):
        for page in (BRAKE, f"{PAGES}activity/"):
            shown = reader.get(f"{page}?cluster={name}").content.decode()
            assert ("Brake engaged" in shown) is held, (name, page)


def test_without_an_engaged_brake_the_page_explains_when_it_engages(reader):
    page = words(reader.get(BRAKE))
    assert "The brake holds no servers" in page
    assert "at least 3 servers of one type, and at least 33.3 % of them" in page and "never been engaged" in page


def test_a_release_needs_a_note_and_affects_only_the_named_brake(staff):
    engage()
    Brake.objects.create(type="EXECUTOR", cluster="eu", engaged_observed=0, silent=3, alive=4)
    client = staff("release_brake", checks_csrf=False)
    address = f"{BRAKE}release/?type=EXECUTOR&cluster=eu"
    page = client.get(address).content.decode()
    assert "EXECUTOR of cluster eu" in page and "is-main is-grave" in page
    assert "errorlist" in client.post(address, {"note": ""}).content.decode()
    answer = client.post(address, {"note": "it burnt down"}, follow=True)
    assert messages_of(answer) == [("success", "Release the brake: done.")]
    assert list(Brake.objects.filter(released_by=None).values_list("type", flat=True)) == ["WORKER"]
    assert "Released by operator:ann: it burnt down" in words(answer)
    assert client.post(address, {"note": "again"}).status_code == 409
    assert client.get(f"{BRAKE}release/?type=nonsense").status_code == 404


@pytest.mark.parametrize("held", ["change_maintenance", "release_brake", None])
def test_actions_need_their_permission_and_the_pages_that_for_servers(staff, held):
    client = staff(*[held] if held else [])
    assert {client.get(page).status_code for page in (MAINTENANCE, BRAKE)} == {200}
    for page, permission in (("maintenance/enter/", "change_maintenance"), ("brake/release/", "release_brake")):
        assert client.get(PAGES + page).status_code == (200 if held == permission else 403)


def test_both_pages_are_below_one_entry_of_the_sidebar(reader):
    entries = re.search(r'<nav class="menu".*?</nav>', reader.get(MAINTENANCE).content.decode(), re.DOTALL)[0]
    assert f'href="{MAINTENANCE}" aria-current="page"' in entries
    page = reader.get(BRAKE).content.decode()
    assert f'href="{MAINTENANCE}" aria-current="true"' in page and f'href="{BRAKE}" aria-current="page"' in page
