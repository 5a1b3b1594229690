"""Counts in the sidebar."""

import re

import pytest

from jobs.models import Incident
from jobs.selectors import instance
from tests.support.operators import engage

pytestmark = pytest.mark.django_db

HOME = "/admin/instance/"
POLL = {"HX-Request": "true"}


def counts_of(answer):
    """Return the count of each tab by its address, as a number and in words."""
    nav = re.search(r'<nav class="menu".*?</nav>', answer.content.decode(), re.DOTALL)[0]
    found = re.findall(
        r'href="/admin/instance/(\w*)/?"[^>]*>.*?</span>\s*(?:<span class="count[^>]*>(.*?)</span></span>)?</a>',
        nav,
        re.DOTALL,
    )
    return {tab: re.sub(r"<[^>]+>+", " ", counted).split(None, 1) for tab, counted in found if counted}


def test_the_sidebar_counts_the_items_that_need_attention(reader, worker, submit, operator, clock):
    well, _ = worker(name="well"), worker(name="silent")
    clock.advance(31)
    well.beat()
    for _ in range(3):
        submit(tags=["none"], unmatched="wait")
    operator("maintenance_enter")
    engage()
    Incident.objects.create(rule="brake", summary="x")
    assert counts_of(reader.get(f"{HOME}jobs/")) == {
        "servers": ["1", "1 silent"], "jobs": ["3", "3 waiting"], "alerts": ["1", "1 open"],
        "maintenance": ["2", "1 active, 1 engaged"],
    }  # fmt: skip


def test_an_entry_without_items_has_only_its_name(reader, worker):
    worker()
    assert counts_of(reader.get(HOME)) == {}


@pytest.mark.parametrize("page", ["", "servers/", "jobs/", "quarantine/"])
def test_a_poll_updates_the_counts(reader, submit, page):
    submit(tags=["none"], unmatched="wait")
    answer = reader.get(f"{HOME}{page}", headers=POLL)
    assert counts_of(answer) == {"jobs": ["1", "1 waiting"]}
    assert 'id="menu"' in answer.content.decode() and 'hx-swap-oob="morph"' in answer.content.decode()


def test_counts_above_the_limit_end_with_a_plus_sign(reader, submit, monkeypatch):
    monkeypatch.setattr(instance, "COUNT_LIMIT", 2)
    for _ in range(3):
        submit(tags=["none"], unmatched="wait")
    assert counts_of(reader.get(f"{HOME}triggers/")) == {"jobs": ["2+", "2+ waiting"]}


def test_the_counts_are_of_the_namespaces_that_the_reader_sees(member, submit):
    submit(tags=["none"], unmatched="wait")
    assert counts_of(member("red").get(f"{HOME}jobs/")) == {}
    assert counts_of(member("default").get(f"{HOME}jobs/")) == {"jobs": ["1", "1 waiting"]}
