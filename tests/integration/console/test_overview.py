"""Overview: each concern links to an action, the fleet has a cell per server, and a new instance has first steps."""

import re

import pytest

from controlplane.console.charts.sparkline import draw_sparkline
from controlplane.console.presenters import fleet
from jobs.selectors.fleet import FleetCell, fleet_by_type
from jobs.services.liveness_check import check_liveness
from liveness.selectors.counts import server_counts_by_type
from tests.support.operators import engage

pytestmark = pytest.mark.django_db
HOME = "/admin/instance/"


@pytest.fixture
def shown(reader):
    return lambda path="": reader.get(HOME + path).content.decode()


def part(page, start, end="</section>"):
    return re.search(f"{start}.*?{end}", page, re.DOTALL)[0]


def concerns(page):
    """Return the label, the text and the link of each row of the verdict."""
    rows = re.findall(r"<li>(.*?)</li>", part(page, '<section class="verdict'), re.DOTALL)
    return [
        (
            re.search(r'<span class="pill[^>]*>([^<]+)<', row)[1],
            re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", row)),
            re.search(r'<a class="button[^"]*"\s+href="([^"]+)">([^<]+)<', row).groups(),
        )
        for row in rows
    ]


def test_a_good_day_is_one_line_without_concerns(shown, worker):
    worker()
    check_liveness()
    assert concerns(shown()) == []


def test_a_silent_server_and_a_stuck_job_lead_to_their_pages(shown, worker, submit, clock):
    silent, well = worker(name="silent"), worker(name="well")
    job = submit(tags=["gpu"], unmatched="wait")["id"]
    clock.advance(31)
    well.beat()
    check_liveness()
    found = {label: (text, way) for label, text, way in concerns(shown())}
    assert found["Silent"][1] == (f"{HOME}servers/{silent.id}/", "Open server") and "silent for" in found["Silent"][0]
    assert found["Stuck"][1] == (f"{HOME}jobs/{job}/", "Open job") and "gpu" in found["Stuck"][0]


def test_the_brake_is_the_headline_and_can_be_released(shown, admin_client, worker):
    worker(name="one")
    check_liveness()
    engage()
    assert concerns(shown())[0][2] == (f"{HOME}brake/?type=WORKER&amp;namespace=default", "Show brake")
    page = admin_client.get(HOME).content.decode()
    label, _, (url, words) = concerns(page)[0]
    assert (label, words) == ("Brake", "Release brake…") and "/brake/release/?type=WORKER" in url
    assert re.search(r'<h2 class="says">\d+ of \d+ workers fell silent at once; the brake holds them</h2>', page)


def test_the_fleet_has_a_cell_for_each_server_with_its_name_and_state(shown, worker, submit, clock):
    silent, busy, idle = worker(name="silent"), worker(name="busy", cluster="east"), worker(name="idle")
    submit()
    busy.hold()
    clock.advance(31)
    busy.beat(), idle.beat()
    check_liveness()
    region = part(shown(), '<section class="card fleet" aria-label="Fleet">')
    cells = re.findall(r'<a class="cell ([^"]+)"\s+href="([^"]+)"[^>]* aria-label="([^"]+)"', region)
    assert set(cells) == {
        ("is-silent", f"{HOME}servers/{silent.id}/", "silent: silent"),
        ("is-alive", f"{HOME}servers/{idle.id}/", "idle: alive"),
        ("is-alive is-busy", f"{HOME}servers/{busy.id}/", "busy: alive, holds work"),
    }
    assert re.findall(r'<span class="of">([^<]+)<', region) == ["Workers", "Workers · east"]


def test_the_fleet_counts_as_the_counts_by_type_do(worker, clock):
    for number in range(3):
        worker(name=f"one-{number}", cluster=f"c{number % 2}")
    clock.advance(31)
    check_liveness()
    assert [{**row, "cells": None} for row in fleet_by_type()] == [
        {**row, "cells": None} for row in server_counts_by_type()
    ]


@pytest.mark.parametrize(("servers", "cells"), [(2_000, 2_000), (2_001, 201)])
def test_above_two_thousand_servers_a_cell_stands_for_ten(servers, cells):
    found = [FleetCell(None, f"w-{number}", "alive", False) for number in range(servers)]
    found[-1] = FleetCell(None, "last", "lost", False)
    counts = {"type": "WORKER", "cluster": "default", "is_own": False, "well": 1, "present": servers, "cells": found}
    shown = fleet.present_fleet([counts])
    [row] = shown["rows"]
    assert len(row["cells"]) == cells and row["cells"][-1]["look"] == "lost"
    assert shown["is_large"] == (cells < servers)


def test_first_steps_tick_themselves_off_until_all_are_done(reader, shown, worker, submit):
    def steps():
        page = shown()
        if "First steps" not in page:
            return None
        rows = part(page, '<section class="card first-steps">').split("<li")[1:]
        return [(re.search("<strong>(.*?)</strong>", row)[1], ">Done<" in row) for row in rows]

    start, submitted, celery = "Start a worker", "Submit a job", "Protect a Celery fleet"
    assert steps() == [(start, False), (submitted, False), (celery, False)]
    worker()
    assert steps() == [(start, True), (submitted, False), (celery, False)]
    submit()
    assert steps() == [(start, True), (submitted, True), (celery, False)]
    worker(name="celery@one", tags=["celery:shop"])
    assert steps() is None


def test_first_steps_can_be_hidden(reader, shown):
    assert "First steps" in shown()
    assert reader.post(f"{HOME}first-steps/hide/").url == HOME
    assert "First steps" not in shown()


def test_the_figures_lead_to_what_they_count(shown, worker, submit):
    worker()
    submit(tags=["none"], unmatched="wait")
    figures = part(shown(), '<section class="figures"')
    labels = re.findall(r'<p class="label"><a href="([^"]+)">([^<]+)</a>', figures)
    assert [label for _, label in labels] == [
        "Workers alive", "Waiting", "Running", "Completed per min", "Failed, last 5 min",
    ]  # fmt: skip
    assert f"{HOME}jobs/?state=PENDING" in dict(labels)
    assert re.search(r'Waiting</a></p>\s*<p class="value">1 ', figures)


@pytest.mark.parametrize(("values", "line"), [([], None), ([3], None), ([None, 2, None], None)])
def test_a_sparkline_needs_two_known_values(values, line):
    assert draw_sparkline(values) is line


def test_a_sparkline_spans_its_box():
    assert draw_sparkline([0, 2, 1]).line == "M0 25L50 3L100 14"
    assert draw_sparkline([None, 0, 0]).line == "M0 25L100 25"


def test_servers_are_sorted_by_the_head_of_a_column(reader, worker):
    for name, version in (("b", "1"), ("a", "3"), ("c", "2")):
        worker(name=name, version=version)

    def listed(query):
        page = reader.get(f"{HOME}servers/{query}").content.decode()
        heads = re.findall(r'aria-sort="(\w+)"><a href="([^"]+)">([^<]+)<', page)
        return re.findall(r">([abc])</a>", page), heads

    assert listed("?sort=name") == (["a", "b", "c"], [("ascending", "?sort=-name", "Server")])
    assert listed("?sort=-name") == (["c", "b", "a"], [("descending", "?sort=name", "Server")])
    assert listed("?sort=-version&type=WORKER")[0] == ["a", "c", "b"]
    assert listed("?sort=-version&type=WORKER")[1] == [("descending", "?type=WORKER&amp;sort=version", "Version")]
    assert sorted(listed("?sort=nothing")[0]) == ["a", "b", "c"]
