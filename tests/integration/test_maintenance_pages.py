"""The pages of maintenance and of the brake: what is in force, what can be done about it, and what has been."""

import re

import pytest
from django.contrib.admin.models import LogEntry

from liveness.models import Brake, ClusterMaintenance, Instance, ServerEvent
from tests.integration.test_page_actions import words
from tests.support.operators import actions, engage

pytestmark = pytest.mark.django_db

PAGES = "/admin/instance/"
MAINTENANCE, BRAKE = f"{PAGES}maintenance/", f"{PAGES}brake/"


def messages_of(answer):
    return re.findall(r'<li class="(success|warning|error)">([^<]+)</li>', answer.content.decode())


def row(page, id):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.partition(f'id="{id}"')[2].partition("</tr>")[0]))


def test_where_nothing_was_ever_begun_the_page_says_what_maintenance_is(reader):
    page = words(reader.get(MAINTENANCE))
    assert "In maintenance nobody gets new work" in page
    assert "None yet. Who begins and ends maintenance is listed here" in page
    assert "Enter…" not in page


def test_each_cluster_has_a_row_with_what_is_in_force_there(staff, operator, worker):
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
    assert "no new work either" in row(client.get(MAINTENANCE).content.decode(), "scope-us")


@pytest.mark.parametrize("cluster", ["", "eu"])
def test_maintenance_is_begun_for_a_while_and_ended_with_no_need_for_a_note(staff, worker, cluster):
    worker(cluster="eu")
    client = staff("change_maintenance", checks_csrf=False)
    query = f"?cluster={cluster}" if cluster else ""
    page = client.get(f"{MAINTENANCE}enter/{query}").content.decode()
    assert 'value="1h"' in page and 'value="24h"' in page and "Note (not required)" in page
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
    assert again.status_code == 409 and "is in maintenance since" in words(again)
    client.post(f"{MAINTENANCE}exit/{query}", {"note": ""})
    assert actions(actor="operator:ann") == ["maintenance_enter", "maintenance_exit"]
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        "Enter maintenance: disks", "Exit maintenance",
    ]  # fmt: skip
    history = words(client.get(MAINTENANCE)).partition("History")[2]
    assert "maintenance_enter" in history and "disks" in history and "operator:ann" in history


@pytest.mark.parametrize("duration", ["soon", "0", "-1"])
def test_a_time_that_is_none_begins_nothing(staff, duration):
    answer = staff("change_maintenance", checks_csrf=False).post(f"{MAINTENANCE}enter/", {"duration": duration})
    assert "errorlist" in answer.content.decode() and not actions()


def test_without_a_time_it_lasts_until_somebody_ends_it(staff):
    staff("change_maintenance", checks_csrf=False).post(f"{MAINTENANCE}enter/", {"duration": ""})
    assert Instance.objects.get().maintenance_until is None and Instance.objects.get().maintenance_since


def test_an_unknown_cluster_is_said_and_nothing_begins(staff, worker):
    worker(cluster="eu")
    client = staff("change_maintenance", checks_csrf=False)
    answer = client.post(f"{MAINTENANCE}enter/?cluster=ue", {"duration": "1h"})
    assert "No server of the cluster ue has ever registered" in words(answer) and not actions()
    assert "No server of the cluster ue is here" in words(client.get(f"{MAINTENANCE}?cluster=ue"))


@pytest.mark.parametrize("name", ["eu", "e" * 255])
def test_the_page_of_one_cluster_tells_of_it_alone(reader, operator, worker, name):
    worker(name="a", cluster=name)
    worker(name="b", cluster="us")
    operator("maintenance_enter", note="of eu", cluster=name)
    operator("maintenance_enter", note="of us", cluster="us")
    page = words(reader.get(f"{MAINTENANCE}?cluster={name}")).partition("In force")[2]
    assert "of eu" in page and "of us" not in page


def test_a_brake_that_holds_is_shown_with_when_it_lets_go(staff, api):
    engage()
    page = staff("release_brake", checks_csrf=False).get(BRAKE).content.decode()
    shown = row(page, f"brake-{Brake.objects.get().pk}")
    assert ("HOLDS" in shown and "3 of 4" in shown and "the first go" in shown) or "10 % go" in shown
    assert f'{BRAKE}release/?type=WORKER"' in page


def test_the_brake_of_a_cluster_is_not_told_as_that_of_one_whose_name_is_its_end_or_a_type(reader, worker):
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
            assert ("brake_engaged" in shown) is held, (name, page)


def test_where_none_holds_the_page_says_when_one_would(reader):
    page = words(reader.get(BRAKE))
    assert "No type of server has fallen silent at large" in page
    assert "When at least 3, and 33.3 %" in page and "It has never held." in page


def test_a_release_needs_a_note_and_is_of_what_it_names(staff):
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
def test_acting_is_for_those_who_may_and_looking_for_who_sees_servers(staff, held):
    client = staff(*[held] if held else [])
    assert {client.get(page).status_code for page in (MAINTENANCE, BRAKE)} == {200}
    for page, permission in (("maintenance/enter/", "change_maintenance"), ("brake/release/", "release_brake")):
        assert client.get(PAGES + page).status_code == (200 if held == permission else 403)


def test_both_stand_in_the_tabs(reader):
    tabs = re.search(r'<nav class="tabs".*?</nav>', reader.get(MAINTENANCE).content.decode(), re.DOTALL)[0]
    assert f'href="{MAINTENANCE}" aria-current="page"' in tabs and f'href="{BRAKE}"' in tabs
