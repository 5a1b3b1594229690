"""Charts of the overview, the trends page, and `GET /instance/history`."""

import re
from datetime import UTC, datetime

import pytest
from django.db import connection

from controlplane.console.charts.history import build_table, draw_charts
from controlplane.console.charts.plots import format_seconds, round_up
from jobs.history import WINDOWS, add_counts, percentile
from jobs.models import HistoryEntry
from jobs.selectors.history import read_history
from jobs.services.history import count_history
from tests.support.people import employ
from tests.support.queries import CapturedQueries

FAILED = {"event": "FAILED", "error": {"code": "BAD", "message": "no"}}


@pytest.fixture
def reader(client, db):
    client.force_login(employ("liveness.view_server", "jobs.view_workerjob"))
    return client


@pytest.fixture
def ended(worker, submit, clock):
    """Create two completed jobs, a failed one and a waiting one."""
    one = worker(name="worker-1")
    for _ in range(2):
        submit()
        one.complete(one.hold())
    submit()
    attempt = one.hold()
    one.report({"attempt": attempt["id"], **FAILED})
    submit()
    count_history()
    return one


def chart(page, name):
    return re.search(rf'<figure class="chart is-{name}".*?</figure>', page, re.DOTALL)[0]


def test_charts_have_a_title_a_description_and_a_table(reader, ended):
    page = reader.get("/admin/instance/").content.decode()
    drawn = chart(page, "ended")
    assert "<title" in drawn
    assert "3 jobs ended, 1 of them failed; 0 servers were lost." in drawn
    growing = re.search(r'class="shape is-failed is-growing" d="M59\.1', drawn)
    assert growing, "in the last of 60 minutes, which is not over"
    assert "completed <b>0</b>" in drawn and "so far" in page
    trends = reader.get("/admin/instance/trends/").content.decode()
    assert "waiting <b>1</b>" in chart(trends, "jobs")
    assert "used <b>0</b>" in chart(trends, "slots")
    table = re.search(r'id="history-table".*?</details>', page, re.DOTALL)[0]
    assert re.search(r'<time datetime="(\S+)T(\S+)\+00:00" title="\1 \2 UTC">', table)
    assert table.count('role="row"') == 13


def test_a_minute_is_drawn_as_whole_once_it_is_over_and_counted(reader, ended, clock):
    now = read_history(WINDOWS["1h"]).now
    clock.advance(65 - now.second - now.microsecond / 1e6), count_history()
    drawn = chart(reader.get("/admin/instance/").content.decode(), "ended")
    assert re.search(r'class="shape is-completed is-growing" d="M58\.1', drawn), "over, but perhaps not counted yet"
    clock.advance(30), count_history()
    drawn = chart(reader.get("/admin/instance/").content.decode(), "ended")
    assert re.search(r'class="shape is-completed" d="M58\.1', drawn) and "is-growing" not in drawn


@pytest.mark.parametrize("window", WINDOWS)
def test_the_window_stands_in_the_address_and_is_kept_by_the_poll(reader, ended, window):
    page = reader.get(f"/admin/instance/?window={window}").content.decode()
    assert f'href="?window={window}" aria-current="true"' in page
    assert f'hx-get="/admin/instance/?window={window}"' in page
    assert "3 jobs ended" in page


def test_an_unknown_window_is_the_usual_one(reader, ended):
    assert 'href="?window=1h" aria-current="true"' in reader.get("/admin/instance/?window=9y").content.decode()


def test_before_the_first_count_the_page_explains_what_counts(reader, worker):
    worker()
    page = reader.get("/admin/instance/").content.decode()
    assert "No counts for this period yet" in page
    assert "celery -A controlplane.celery beat" in page


def test_a_user_without_permission_for_jobs_sees_no_charts(client, ended):
    client.force_login(employ("liveness.view_server"))
    assert "chart" not in client.get("/admin/instance/").content.decode()
    assert client.get("/admin/instance/trends/").status_code == 403


def test_the_page_of_trends_names_each_action_and_tag_with_its_failure_rate(reader, ended):
    page = reader.get("/admin/instance/trends/").content.decode()
    assert "By action" in page
    assert "By tag" in page
    assert "33.3 %" in page
    assert 'href="/admin/instance/jobs/?tag=script"' in page


def test_charts_read_no_jobs(reader, ended):
    with CapturedQueries(connection) as queries:
        read_history(WINDOWS["7d"])
    (query,) = queries
    assert "jobs_workerjob" not in query["sql"]
    assert "jobs_attempt" not in query["sql"]


def test_a_loss_is_marked_with_what_moved(reader, ended):
    HistoryEntry.objects.filter(dimension="").update(lost=2, moved=14)
    drawn = chart(reader.get("/admin/instance/").content.decode(), "ended")
    assert "2 servers lost, 14 running attempts resubmitted" in drawn


def test_lines_break_where_no_value_is_known(ended):
    HistoryEntry.objects.filter(dimension="").update(waiting=None, running=None)
    lines = draw_charts(read_history(WINDOWS["1h"]))[1]
    assert [series.path for series in lines.series] == ["", ""]
    assert [series.latest for series in lines.series] == ["–", "–"]
    assert [row.waiting for row in build_table(read_history(WINDOWS["1h"]))] == ["–"] * 12


def test_the_api_has_the_same_figures(api, ended):
    answer = api("viewer").get("/instance/history?window=24h")
    assert answer.status_code == 200
    seen = answer.json()
    assert (seen["window"], seen["step_seconds"], len(seen["points"])) == ("24h", 900, 96)
    last = seen["points"][-1]
    assert last["ended"] == {"completed": 2, "failed": 1, "cancelled": 0, "expired": 0, "skipped": 0}
    assert (last["waiting"], last["running"], last["servers_lost"]) == (1, 0, 0)
    (action,) = api("viewer").get("/instance/history/actions").json()["items"]
    assert (action["key"], action["jobs"], round(action["failure_rate"], 3)) == ("script", 3, 0.333)
    assert [row["key"] for row in api("viewer").get("/instance/history/tags").json()["items"]] == ["script"]


def test_an_unknown_window_or_parameter_is_refused_by_the_api(api):
    for query in ("window=9y", "since=1"):
        assert api("viewer").get(f"/instance/history?{query}").status_code == 400


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (1.1, 2), (3, 5), (5.1, 10), (10, 10), (11, 20), (999, 1000), (5001, 10000)]
)
def test_a_scale_ends_at_a_round_number(value, top):
    assert round_up(value) == top


@pytest.mark.parametrize(("seconds", "words"), [(0.042, "0.042 s"), (4.18, "4.2 s"), (75, "1 min 15 s")])
def test_seconds_are_written_with_two_digits(seconds, words):
    assert format_seconds(seconds) == words


def test_a_percentile_is_that_of_all_durations_however_they_were_counted():
    whole = {"10": 50, "40": 45, "60": 5}
    parts = [{"10": 50}, {"40": 45, "60": 2}, {"60": 3}]
    assert add_counts(parts) == whole
    assert [percentile(whole, share) for share in (0.5, 0.95, 0.96)] == [
        percentile({"10": 1}, 1), percentile({"40": 1}, 1), percentile({"60": 1}, 1)
    ]  # fmt: skip
    assert percentile({}, 0.5) is None


def test_moments_are_in_utc_and_the_last_step_is_the_present_one(clock):
    history = read_history(WINDOWS["7d"])
    assert history.points[-1].at <= history.now
    assert (history.now - history.points[-1].at).total_seconds() < 3600
    assert history.points[0].at.astimezone(UTC).minute == datetime.min.minute
