"""Charts on the page of a server: its slots, attempts and heartbeats, and the load of its machine."""

import re
from datetime import timedelta
from urllib.parse import urlencode

import pytest

from controlplane.console.charts.server import tabulate
from controlplane.console.selectors import chart_period
from controlplane.console.selectors.periods import first_id_at, format_field
from jobs.selectors import server_history
from jobs.selectors.server_history import Period, ServerHistory
from jobs.services.liveness_check import check_liveness
from jobs.sql import sql
from liveness.selectors.clock import database_time
from liveness.states import ServerType
from tests.support.people import employ

FAILED = {"event": "FAILED", "error": {"code": "BAD", "message": "no"}}


@pytest.fixture
def worked(worker, submit, clock):
    """Return a worker that completed an attempt, failed one and gave one back. It sent no heartbeat for two minutes."""
    one = worker(name="one", max_concurrent=4)
    for _ in range(3):
        submit()
    held = one.claim(limit=3)
    one.report(*[{"attempt": attempt["id"], "event": "STARTED"} for attempt in held[:2]])
    clock.advance(120)
    one.beat()
    one.report(
        {"attempt": held[0]["id"], "event": "COMPLETED"},
        {"attempt": held[1]["id"], **FAILED},
        {"attempt": held[2]["id"], "event": "RELEASED", "reason": "fenced"},
    )
    return one


def figure(page, name):
    return re.search(rf'<figure class="chart is-{name}".*?</figure>', page, re.DOTALL)[0]


def read(server, period, now):
    return sql.read_server_history.fetch_rows(
        server=server, **period.params(now, first_id_at(period.since - timedelta(seconds=period.seconds)))
    )


def test_the_page_of_a_worker_has_charts_of_its_work_and_heartbeats(reader, worked):
    page = reader.get(f"/admin/instance/servers/{worked.id}/").content.decode()
    assert "The last hour" in page
    assert "Slots in use, of 4" in figure(page, "slots")
    ended = figure(page, "ended")
    assert "3 attempts ended, 1 of them failed." in ended
    assert re.findall(r"(completed|failed|lost) <b>(\d+)</b>", ended) == [
        ("completed", "1"),
        ("failed", "1"),
        ("lost", "1"),
    ]
    assert re.search(r"longest: at most 2 min( 0 s)?; expected: at most \d+ s\.", figure(page, "beats"))
    assert f'data-jobs="/admin/instance/jobs/?server={worked.id}"' in ended
    assert f'data-range="/admin/instance/servers/{worked.id}/"' in ended
    table = re.search(r'id="charts-table".*?</details>', page, re.DOTALL)[0]
    assert table.count("<tr") == 13 or table.count('role="row"') == 13


def test_a_range_stands_in_the_address_and_has_links_beside_it(reader, worked):
    now = database_time()
    asked = {"since": format_field(now - timedelta(minutes=10)), "until": format_field(now + timedelta(seconds=30))}
    page = reader.get(f"/admin/instance/servers/{worked.id}/?{urlencode(asked)}").content.decode()
    assert "3 attempts ended" in page
    assert 'aria-current="true">hour' not in page
    assert re.search(r'<details id="charts-range" open>', page)
    since, until = re.findall(r'name="(?:since|until)" step="1" value="([^"]+)"', page)
    assert since <= asked["since"] < asked["until"] <= until, "the times begin and end a step"
    for label in ("Earlier", "Closer", "Wider"):
        [address] = re.findall(rf'<a href="([^"]*)#charts">{label}</a>', page)
        assert reader.get(f"/admin/instance/servers/{worked.id}/{address}".replace("&amp;", "&")).status_code == 200
    long_ago = {"since": "2001-01-01T00:00", "until": "2001-01-02T00:00"}
    page = reader.get(f"/admin/instance/servers/{worked.id}/?{urlencode(long_ago)}").content.decode()
    assert "0 attempts ended" in page and "Later" in page
    for wrong in ({"since": "x", "until": "y"}, {"since": asked["until"], "until": asked["since"]}):
        assert (
            "The last hour" in reader.get(f"/admin/instance/servers/{worked.id}/?{urlencode(wrong)}").content.decode()
        )


def test_servers_without_jobs_have_a_chart_of_their_heartbeats_alone(reader, client, worker, worked):
    web = worker(name="web", type=ServerType.WEBSERVER.value)
    pages = [reader.get(f"/admin/instance/servers/{web.id}/").content.decode()]
    client.force_login(employ("liveness.view_server"))
    pages.append(client.get(f"/admin/instance/servers/{worked.id}/").content.decode())
    for page in pages:
        assert "Longest time between heartbeats" in page
        assert "Slots in use" not in page and "data-jobs" not in page


def test_held_slots_are_averages_and_what_is_not_read_is_unknown(worked, clock, monkeypatch):
    now = database_time()
    period = Period(now - timedelta(seconds=600), 60, 20)
    rows = read(worked.id, period, now + timedelta(hours=1))
    assert sum(row.slots_used for row in rows) * 60 == pytest.approx(360, abs=1)
    assert max(row.slots_used for row in rows) == pytest.approx(3, abs=0.01)
    assert [sum(getattr(row, end) for row in rows) for end in ("completed", "failed", "others")] == [1, 1, 1]
    assert max(row.longest_gap or 0 for row in rows) == pytest.approx(120, abs=1)
    monkeypatch.setattr(server_history, "ATTEMPTS_READ", 2)
    rows = read(worked.id, period, now + timedelta(hours=1))
    assert rows[0].slots_used is None and rows[0].completed is None
    assert rows[-1].slots_used == 0
    table = tabulate(ServerHistory(period, now + timedelta(hours=1), rows))
    assert (table[-1].slots, table[-1].completed, table[0].slots) == ("–", "–", "0")


def test_the_time_since_the_last_heartbeat_counts_while_more_are_expected(reader, worked, clock):
    clock.advance(200)
    page = reader.get(f"/admin/instance/servers/{worked.id}/").content.decode()
    assert "longest: at most 3 min 20 s" in figure(page, "beats")


def test_the_load_of_the_machine_is_drawn_from_its_heartbeats(reader, worker, clock):
    web = worker(name="web", type=ServerType.WEBSERVER.value)
    now = database_time()
    web.beat(metrics={"cpu_percent": 20.4, "memory_percent": 1e308})
    web.beat(metrics={"cpu_percent": 60, "memory_percent": -3})
    web.beat()
    for unusable in ("50", None, True, [50], {"of": 50}):
        assert web.beat(metrics={"cpu_percent": unusable}).status_code == 200
    rows = read(web.id, Period(now - timedelta(seconds=30), 60, 1), now + timedelta(hours=1))
    assert [row[-4:] for row in rows] == [(40, 60, 50, 100)]
    page = reader.get(f"/admin/instance/servers/{web.id}/").content.decode()
    assert "highest: at most 60 %; average: at most" in figure(page, "cpu")
    assert "highest: at most 100 %; average: at most" in figure(page, "memory")
    table = re.search(r'id="charts-table".*?</details>', page, re.DOTALL)[0]
    assert "60 %" in table and "100 %" in table


def test_a_server_that_reports_no_load_has_no_charts_of_it(reader, worked):
    page = reader.get(f"/admin/instance/servers/{worked.id}/").content.decode()
    assert "CPU use of the machine" not in page and "Highest CPU use" not in page


def test_the_times_at_which_a_server_was_lost_are_marked(reader, worked, clock, worker):
    heir = worker(name="heir")
    for _ in range(5):
        clock.advance(120), heir.beat(), check_liveness()
    drawn = figure(reader.get(f"/admin/instance/servers/{worked.id}/").content.decode(), "beats")
    assert re.search(r"<title>\w+ \d+ \d+:\d+ UTC: lost</title>", drawn)


@pytest.mark.parametrize(
    ("minutes", "step", "most"),
    [(1, 5, 13), (10, 5, 121), (11, 10, 67), (24 * 60, 900, 97), (90 * 24 * 60, 21600, 121)],
)
def test_a_range_has_at_most_so_many_steps_of_a_round_length(minutes, step, most):
    now = chart_period.moment_of(1_700_000_000)
    period = chart_period.build_range(now - timedelta(minutes=minutes), now, now)
    assert period.step == step and period.points <= most
    assert period.since.timestamp() % step == 0
    assert period.until >= now


@pytest.mark.parametrize("year", [1, 9999])
def test_a_range_outside_of_all_times_is_moved(year):
    now = chart_period.moment_of(1_700_000_000)
    given = {"since": f"{year:04}-01-02T00:00", "until": f"{year:04}-01-03T00:00"}
    chosen = chart_period.ChartPeriod.from_address(given, now)
    assert chosen.window == "" and abs(now - chosen.period.since) < timedelta(days=4000)
    assert all("since" in address for _, address in chosen.links(now))
