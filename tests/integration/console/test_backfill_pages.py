"""Pages that begin, show and stop backfills."""

import pytest

from jobs.models import Backfill
from tests.integration.console.test_page_actions import words
from tests.integration.console.test_trigger_pages import AT, make

__all__ = ["make"]

pytestmark = pytest.mark.django_db

PERIOD = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T05:00:00Z", "max_running": "2"}


def test_a_backfill_is_begun_shown_and_stopped(make, staff):
    trigger = make(cron="0 * * * *")
    browser = staff("evaluate_trigger", checks_csrf=False)
    page = f"{AT}/{trigger}/"
    add = f"{page}backfills/add/"
    assert f'href="{add}"' in browser.get(page).content.decode()
    assert browser.post(add, PERIOD).status_code == 302
    backfill = Backfill.objects.get()
    assert (backfill.total, backfill.max_running, backfill.by) == (5, 2, "operator:ann")
    stop = f"{page}backfills/{backfill.pk}/stop/"
    shown = browser.get(page)
    assert f'href="{stop}"' in shown.content.decode()
    assert "Stop the backfill" in browser.get(stop).content.decode()
    assert "2020-01-01 00:00:00" in words(shown) or "Jan 01" in words(shown)
    assert browser.post(stop, {"note": ""}).status_code == 302
    backfill.refresh_from_db()
    assert backfill.state == "STOPPED"
    assert browser.post(stop, {"note": ""}).status_code == 409
    assert f'href="{stop}"' not in browser.get(page).content.decode()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"from": "yesterday"}, "wrong format"),
        ({"to": "2019-01-01T00:00:00Z"}, "is not before"),
        ({"max_running": "0"}, "1"),
    ],
)
def test_a_wrong_period_is_shown_in_the_form(make, staff, fields, expected):
    browser = staff("evaluate_trigger", checks_csrf=False)
    answer = browser.post(f"{AT}/{make()}/backfills/add/", {**PERIOD, **fields})
    assert answer.status_code == 200
    assert expected in words(answer)
    assert not Backfill.objects.exists()


def test_a_form_that_is_sent_twice_begins_one_backfill(make, staff):
    browser = staff("evaluate_trigger", checks_csrf=False)
    add = f"{AT}/{make()}/backfills/add/"
    form = {**PERIOD, "key": "one"}
    assert [browser.post(add, form).status_code for _ in range(2)] == [302, 302]
    assert Backfill.objects.count() == 1


def test_a_backfill_that_was_deleted_is_unknown(make, staff):
    trigger = make(cron="0 * * * *")
    unknown = staff("evaluate_trigger").get(f"{AT}/{trigger}/backfills/{trigger}/stop/")
    assert unknown.status_code == 404
    assert "Unknown backfill" in unknown.content.decode()
