"""Test that pages do not show an outage of the control plane itself as the silence of a worker."""

import re

from django.db import connection

from tests.support.clock import heartbeats_get_in
from tests.support.queries import CapturedQueries

TICKS = 8


def beat(clock, *servers, is_plane_there=True):
    for _ in range(TICKS):
        clock.advance(3)
        for server in servers:
            server.beat()
        if is_plane_there:
            heartbeats_get_in()


def gaps(page):
    return re.findall(r'<svg class="gap is-(\w+)"', page)


def test_an_outage_of_the_control_plane_is_drawn_as_its_own(reader, worker, submit, clock):
    job, one = submit(), worker(name="worker-1")
    one.hold()
    beat(clock, one)
    clock.step(60)
    beat(clock, one)
    page = reader.get(f"/admin/instance/jobs/{job['id']}/").content.decode()
    assert gaps(page) == ["outage"] and "the control plane was down: 1 min" in page
    page = reader.get(f"/admin/instance/servers/{one.id}/").content.decode()
    assert "(the control plane was down)" in page and ", 0 missing" in page


def test_the_overview_shows_no_missing_heartbeats_of_an_outage(reader, worker, clock):
    one = worker(name="worker-1")
    beat(clock, one)
    clock.step(60)
    beat(clock, one)
    page = reader.get("/admin/instance/").content.decode()
    row = re.search(rf'id="server-{one.id}".*?</tr>', page, re.DOTALL)[0]
    assert "heartbeats, 0 missing" in row


def test_the_silence_of_a_worker_is_drawn_as_before(reader, worker, submit, clock):
    job, one = submit(), worker(name="worker-1")
    one.hold()
    beat(clock, one), beat(clock), beat(clock), beat(clock, one)
    page = reader.get(f"/admin/instance/jobs/{job['id']}/").content.decode()
    assert gaps(page) == ["silent"] and "the control plane was down" not in page
    page = reader.get(f"/admin/instance/servers/{one.id}/").content.decode()
    assert "(the control plane was down)" not in page and ", 0 missing" not in page


def test_a_worker_that_stays_silent_after_an_outage_is_drawn_as_both(reader, worker, submit, clock):
    job, one = submit(), worker(name="worker-1")
    one.hold()
    beat(clock, one)
    clock.step(60)
    beat(clock), beat(clock)
    page = reader.get(f"/admin/instance/jobs/{job['id']}/").content.decode()
    assert gaps(page) == ["outage", "silent"]


def test_without_heartbeats_of_its_own_no_outage_is_claimed(reader, worker, submit, clock):
    job, one = submit(), worker(name="worker-1")
    one.hold()
    beat(clock, one, is_plane_there=False)
    clock.step(60)
    beat(clock, one, is_plane_there=False)
    page = reader.get(f"/admin/instance/jobs/{job['id']}/").content.decode()
    assert gaps(page) == ["silent"]


def test_an_outage_costs_the_page_of_a_job_one_query_and_others_none(reader, worker, submit, clock):
    job, one = submit(), worker(name="worker-1")
    one.hold()
    beat(clock, one)
    pages = [f"/admin/instance/jobs/{job['id']}/", f"/admin/instance/servers/{one.id}/"]
    before = [count_queries(reader, page) for page in pages]
    clock.step(60)
    beat(clock, one)
    assert [count_queries(reader, page) for page in pages] == [before[0] + 1, before[1]]


def count_queries(reader, page):
    reader.get(page)
    with CapturedQueries(connection) as queries:
        reader.get(page)
    return len(queries)
