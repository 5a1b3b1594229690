"""What the tabs tell the number of."""

import re

import pytest

from jobs.models import Incident
from jobs.selectors import instance
from tests.integration.test_namespace_pages import member  # noqa: F401
from tests.support.operators import engage

pytestmark = pytest.mark.django_db

HOME = "/admin/instance/"
POLL = {"HX-Request": "true"}


def told(answer):
    """What each tab tells, by its address, as a number and in words."""
    nav = re.search(r'<nav class="tabs".*?</nav>', answer.content.decode(), re.DOTALL)[0]
    found = re.findall(
        r'href="/admin/instance/(\w*)/?"[^>]*>\w+(?: <span class="count[^>]*>(.*?)</span></span>)?</a>', nav
    )
    return {tab: re.sub(r"<[^>]+>+", " ", counted).split(None, 1) for tab, counted in found if counted}


def test_tabs_tell_how_much_there_is_to_look_at(reader, worker, submit, operator, clock):
    well, _ = worker(name="well"), worker(name="silent")
    clock.advance(31)
    well.beat()
    for _ in range(3):
        submit(tags=["none"], unmatched="wait")
    operator("maintenance_enter")
    engage()
    Incident.objects.create(rule="brake", summary="x")
    assert told(reader.get(f"{HOME}jobs/")) == {
        "servers": ["1", "1 silent"], "jobs": ["3", "3 waiting"], "alerts": ["1", "1 open"],
        "maintenance": ["1", "1 in force"], "brake": ["1", "1 engaged"],
    }  # fmt: skip


def test_where_there_is_nothing_to_tell_a_tab_is_only_a_name(reader, worker):
    worker()
    assert told(reader.get(HOME)) == {}


@pytest.mark.parametrize("page", ["", "servers/", "jobs/", "quarantine/"])
def test_a_poll_brings_the_numbers_anew(reader, submit, page):
    submit(tags=["none"], unmatched="wait")
    answer = reader.get(f"{HOME}{page}", headers=POLL)
    assert told(answer) == {"jobs": ["1", "1 waiting"]}
    assert 'id="tabs"' in answer.content.decode() and 'hx-swap-oob="morph"' in answer.content.decode()


def test_of_very_many_it_is_said_that_there_are_more(reader, submit, monkeypatch):
    monkeypatch.setattr(instance, "COUNT_LIMIT", 2)
    for _ in range(3):
        submit(tags=["none"], unmatched="wait")
    assert told(reader.get(f"{HOME}triggers/")) == {"jobs": ["2+", "2+ waiting"]}


def test_they_are_of_the_namespaces_that_the_reader_sees(member, submit):  # noqa: F811
    submit(tags=["none"], unmatched="wait")
    assert told(member("red").get(f"{HOME}jobs/")) == {}
    assert told(member("default").get(f"{HOME}jobs/")) == {"jobs": ["1", "1 waiting"]}
