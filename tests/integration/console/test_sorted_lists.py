"""Lists are sorted by an index or within a scan window, and limited to a period."""

import html
import re
import uuid
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F

from controlplane.console.selectors import periods
from jobs import scan_window
from jobs.models import Attempt, Execution, WorkerJob
from jobs.selectors.job_lists import SORT_KEYS, jobs_page
from jobs.selectors.jobs import jobs_without_content
from liveness.models import ServerEvent
from tests.support.executions import step
from tests.support.queries import CapturedQueries

pytestmark = pytest.mark.django_db
AT = "/admin/instance/"


@pytest.fixture
def pages(admin_client):
    """Return a function that reads all pages of a list: the ids of the rows, and the text of each page."""

    def follow(folder, query=""):
        while query is not None:
            answer = admin_client.get(f"{AT}{folder}/{query}")
            assert answer.status_code == 200
            shown = answer.content.decode()
            yield (
                re.findall(r'<tr role="row" id="\w+-([^"]+)"', shown),
                re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", shown)),
            )
            more = re.search(r'<a href="([^"]*)">(?:Search (?:older|newer) ones|Older|Newer|More)</a>', shown)
            query = more and html.unescape(more[1])

    return lambda *address: list(follow(*address))


def ids(shown_pages):
    return [id for rows, _ in shown_pages for id in rows]


@pytest.fixture
def looked(monkeypatch):
    monkeypatch.setattr("controlplane.console.views.jobs.JOBS_A_PAGE", 2)
    return lambda number: monkeypatch.setattr(scan_window, "SCAN_LIMIT", number)


@pytest.fixture
def ran(submit, worker):
    """Create jobs that ran for these numbers of seconds: `ran(3, 1, 2)`."""

    def make(*seconds):
        one, made = worker(max_concurrent=99), []
        for number in seconds:
            made.append(submit()["id"])
            one.complete(one.hold())
            Attempt.objects.filter(job=made[-1]).update(started_at=F("finished_at") - timedelta(seconds=number))
        return made

    return make


@pytest.mark.parametrize(
    "query", ["", "tag=script", "state=PENDING", "state=PENDING&tag=script", "q=true", "within=1h"]
)
@pytest.mark.parametrize("number", [1, 3, 8])
def test_oldest_first_lists_every_job_once_and_shows_how_far_it_searched(pages, submit, looked, query, number):
    looked(number)
    jobs = [submit()["id"] for _ in range(5)]
    shown = pages("jobs", f"?sort=oldest&{query}")
    assert ids(shown) == jobs
    is_searched = "tag" in query or "q=" in query
    assert ("Searched the oldest" in shown[0][1]) == (is_searched and number == 1)


def test_the_longest_run_is_first_and_what_has_not_begun_is_last(pages, ran, submit, looked):
    looked(10)
    first, second, third = ran(3, 1, 2)
    waiting = submit()["id"]
    shown = pages("jobs", "?sort=longest")
    assert ids(shown) == [first, third, second, waiting]
    assert "Searched and sorted" not in shown[0][1]


def test_a_job_that_runs_is_sorted_by_how_long_it_has_run_until_now(pages, ran, submit, worker, clock):
    done = ran(5)[0]
    running = submit()["id"]
    worker().hold()
    clock.advance(4)
    assert ids(pages("jobs", "?sort=longest")) == [done, running]
    clock.advance(2)
    assert ids(pages("jobs", "?sort=longest")) == [running, done]


def test_the_highest_priority_is_first_and_is_shown(pages, submit):
    low, high, middle = (submit(priority=number)["id"] for number in (-1, 7, 0))
    shown = pages("jobs", "?sort=priority&state=PENDING")
    assert ids(shown) == [high, middle, low]
    assert "Priority" in shown[0][1]


@pytest.mark.parametrize("number", [2, 3, 5, 9])
def test_a_list_without_an_index_is_sorted_by_window_and_has_every_job_once(pages, ran, looked, number):
    looked(number)
    jobs = ran(1, 5, 2, 6, 3)
    shown = pages("jobs", "?sort=longest")
    assert sorted(ids(shown)) == sorted(jobs)
    newest = {jobs[place]: seconds for place, seconds in ((4, 3), (3, 6), (2, 2), (1, 5), (0, 1))[:number]}
    assert ids(shown)[: len(newest)] == sorted(newest, key=newest.__getitem__, reverse=True)
    assert (f"Searched and sorted the newest {number} jobs" in shown[0][1]) == (number < 5)


def test_new_jobs_do_not_move_the_scan_window(admin_client, ran, submit, looked):
    looked(5)
    jobs = ran(1, 2, 3)
    page = admin_client.get(f"{AT}jobs/?sort=longest").content.decode()
    more = html.unescape(re.search(r'<a href="([^"]*)">More</a>', page)[1])
    for _ in range(5):
        submit()
    page = admin_client.get(f"{AT}jobs/{more}").content.decode()
    assert re.findall(r'<tr role="row" id="job-([^"]+)"', page) == [jobs[0]]


def test_a_filter_and_an_order_go_together_and_links_keep_both(admin_client, ran):
    ran(1, 2)
    page = html.unescape(admin_client.get(f"{AT}jobs/?state=COMPLETED&tag=script&sort=longest").content.decode())
    assert 'href="?state=COMPLETED&tag=script&sort=oldest"' not in page
    assert 'href="?state=COMPLETED&tag=script">Submitted' in page
    assert 'aria-sort="descending"><a href="?state=COMPLETED&tag=script&sort=longest">Duration' in page
    assert re.search(r'href="/admin/instance/jobs/\?tag=script&sort=longest&state=FAILED"', page)
    assert 'option value="longest" selected' in page


@pytest.mark.parametrize("order", ["oldest", "longest", "priority"])
def test_a_sorted_list_costs_no_more_than_eight_queries(
    admin_client, ran, looked, order, django_assert_max_num_queries
):
    looked(2)
    ran(1, 2, 3, 4)
    for query in ("", "&tag=script", "&q=nobody&server=worker-1&within=24h", "&state=COMPLETED"):
        with django_assert_max_num_queries(8):
            assert admin_client.get(f"{AT}jobs/?sort={order}{query}").status_code == 200


@pytest.mark.parametrize("order", ["longest", "priority"])
def test_sorting_reads_one_scan_window_however_many_rows_exist(submit, looked, order):
    looked(2)
    for _ in range(4):
        submit()
    window, _ = scan_window.next_scan_window(jobs_without_content())
    with connection.cursor() as cursor:
        cursor.execute("set local enable_seqscan = off")
    with CapturedQueries(connection) as queries:
        assert len(jobs_page(window, None, 2, order)) == 2
    with connection.cursor() as cursor:
        cursor.execute(f"explain {queries[-1]['sql']}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan on jobs_workerjob" not in plan
    assert set(SORT_KEYS) == {"longest", "priority"}


@pytest.mark.parametrize(("within", "seconds"), [("15m", 900), ("1h", 3600), ("24h", 86400), ("7d", 7 * 86400)])
def test_jobs_executions_and_activity_of_a_period_that_ends_now(
    pages, submit, begin, clock, operator, worker, within, seconds
):
    one = worker(name="one")
    old, run = submit()["id"], begin(step("a")).id
    operator("cordon", one)
    clock.advance(seconds)
    assert old in ids(pages("jobs", f"?within={within}"))
    assert ids(pages("executions", f"?within={within}")) == [str(run)]
    assert "Cordon one" in pages("activity", f"?within={within}")[0][1]
    clock.advance(1)  # ids of the tests are some milliseconds ahead
    new = submit()["id"]
    assert ids(pages("jobs", f"?within={within}")) == [new]
    assert ids(pages("executions", f"?within={within}")) == []
    assert "Cordon one" not in pages("activity", f"?within={within}")[0][1]


def test_jobs_and_executions_from_a_moment_on_and_before_another(pages, submit, begin, clock):
    jobs, runs = [], []
    for _ in range(3):
        runs.append(str(begin(step("a")).id))
        jobs.append(submit()["id"])
        clock.advance(10)
    start = WorkerJob.objects.get(pk=jobs[1]).created_at
    # Filters use whole seconds, but the clock of the tests does not.
    since, until = (moment_of(start + timedelta(seconds=seconds)) for seconds in (-5, 5))
    assert ids(pages("jobs", f"?since={since}&until={until}&kind=TASK&q=true"))[0] == jobs[1]
    assert jobs[1] in ids(pages("jobs", f"?since={since}&until={until}"))
    assert not {jobs[0], jobs[2]} & set(ids(pages("jobs", f"?since={since}&until={until}")))
    assert ids(pages("executions", f"?since={since}")) == [runs[2], runs[1]]
    assert ids(pages("executions", f"?until={until}")) == [runs[1], runs[0]]
    assert Execution.objects.count() == 3


def moment_of(at):
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def test_activity_from_a_moment_on_and_before_another_on_every_page(pages, clock, monkeypatch):
    monkeypatch.setattr("controlplane.console.views.activity.ENTRIES_A_PAGE", 1)
    start = None
    for name in ("a", "b", "c", "d"):
        event = {"subject_type": "server", "subject_id": uuid.uuid4(), "subject_name": name, "action": "cordon_server"}
        row = ServerEvent.objects.create(actor="operator:ann", reason="", **event)
        row.refresh_from_db()
        start = start or row.at
        clock.advance(10)
    since, until = moment_of(start + timedelta(seconds=5)), moment_of(start + timedelta(seconds=25))
    shown = pages("activity", f"?since={since}&until={until}")
    assert [name for _, text in shown for name in re.findall(r"Cordon server (\w)\b", text)] == ["c", "b"]


def test_a_period_limits_actions_on_all_matches(admin_client, submit, clock):
    submit()
    clock.advance(901)
    submit()
    page = admin_client.get(f"{AT}jobs/cancel/?within=15m&all=1").content.decode()
    assert "1 job (of the last 15m)" in page and "Cancel: 1 job" in page


def test_an_invalid_time_filters_nothing_and_shows_an_error(admin_client, submit):
    job = submit()["id"]
    for query in (
        "since=yesterday",
        "until=%00",
        "within=1y",
        "sort=colour",
        "since=0001-01-01T00:00",
        "until=9999-12-31",
    ):
        page = admin_client.get(f"{AT}jobs/?{query}").content.decode()
        assert job in page
        assert ("errorlist" in page) == ("0001" not in query and "9999" not in query)


def test_an_id_is_made_at_its_moment(submit):
    job = WorkerJob.objects.get(pk=submit()["id"])
    at = job.created_at
    assert (
        periods.first_id_at(at - timedelta(milliseconds=1))
        < job.pk
        < periods.first_id_at(at + timedelta(milliseconds=1))
    )
    assert periods.first_id_at(datetime(1, 1, 1, tzinfo=UTC)) == UUID(int=0)


def test_a_period_is_found_by_the_index_of_ids(submit):
    for _ in range(3):
        submit()
    with connection.cursor() as cursor:
        cursor.execute("set local enable_seqscan = off; set local enable_bitmapscan = off")
    plan = WorkerJob.objects.filter(pk__gte=periods.first_id_within(timedelta(hours=1))).order_by("-pk").explain()
    assert re.search(r"Index Cond: \(id >= \$0|Index Cond: \(id >= \(InitPlan", plan), plan
