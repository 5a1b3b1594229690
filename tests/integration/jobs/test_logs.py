"""Log lines of jobs: stored once and in order, refused from lost attempts, read and shown."""

import json
import re
import uuid
from html import unescape

import pytest
from django.db import connection, transaction

from controlplane.console.selectors import log_lines
from jobs.models import LateReport, LogLine
from jobs.services import reporting
from jobs.services.liveness_check import check_liveness
from tests.integration.races.test_hot_paths import someone_waits, submit_many
from tests.support.http import Worker
from tests.support.people import employ
from tests.support.plans import executed
from tests.support.queries import CapturedQueries

HOSTILE = "<script>alert(1)</script>"


def wrote(attempt, *lines, stream="STDOUT", **more):
    return {"attempt": attempt["id"], "event": "LOG", "stream": stream, "lines": list(lines), **more}


def brief(results):
    return [(result["accepted"], result["replayed"], result["state"], result["code"]) for result in results]


ACCEPTED, REPLAYED = (True, False, "RUNNING", None), (True, True, "RUNNING", None)


@pytest.fixture
def held(worker, submit):
    """Return a job with its worker and attempt. `lines()` returns the texts of its lines in the API."""

    class Held:
        def __init__(self, running=True, **says):
            self.job = submit()["id"]
            self.worker = worker(**says)
            self.attempt = self.worker.hold(running=running)

        def write(self, *lines, **more):
            return brief(self.worker.report(wrote(self.attempt, *lines, **more)))[0]

        def read(self, query="", **headers):
            return submit.client.get(f"/jobs/{self.job}/logs{query}", **headers)

        def lines(self, query=""):
            return [item["line"] for item in self.read(query).json()["items"]]

    return Held


def test_lines_are_read_as_they_were_written(held):
    one = held()
    assert one.write("a", "", "ü\U0001f600") == ACCEPTED
    assert one.write("oh", stream="STDERR") == ACCEPTED
    body = one.read().json()
    assert [(item["attempt"], item["stream"], item["line"]) for item in body["items"]] == [
        (1, "STDOUT", "a"), (1, "STDOUT", ""), (1, "STDOUT", "ü\U0001f600"), (1, "STDERR", "oh"),
    ]  # fmt: skip
    assert set(body["items"][0]) == {"at", "attempt", "stream", "line"}
    assert body["next"] is None


def test_one_call_starts_writes_in_order_and_ends_in_one_round_trip(held):
    one = held(running=False)
    reports = [
        {"attempt": one.attempt["id"], "event": "STARTED"},
        wrote(one.attempt, "1", "2"),
        {"attempt": one.attempt["id"], "event": "PROGRESS", "progress": 0.5},
        wrote(one.attempt, "3", stream="STDERR"),
        wrote(one.attempt, "4"),
        {"attempt": one.attempt["id"], "event": "COMPLETED", "output": 1},
    ]
    with CapturedQueries(connection) as queries:
        results = one.worker.report(*reports)
    assert len(queries) == 1
    assert [result["accepted"] for result in results] == [True] * 6
    assert one.lines() == ["1", "2", "3", "4"]


def test_lines_of_several_attempts_are_stored_in_one_call(worker, submit):
    jobs = [submit()["id"] for _ in range(2)]
    one = worker()
    attempts = [one.hold(), one.hold()]
    reports = [wrote(attempt, f"{number} of {attempt['job']['id']}") for number in (1, 2) for attempt in attempts]
    assert brief(one.report(*reports)) == [ACCEPTED] * 4
    for job in jobs:
        items = submit.client.get(f"/jobs/{job}/logs").json()["items"]
        assert [item["line"] for item in items] == [f"1 of {job}", f"2 of {job}"]


def test_lines_before_the_start_are_refused(held):
    one = held(running=False)
    started = {"attempt": one.attempt["id"], "event": "STARTED"}
    results = brief(one.worker.report(wrote(one.attempt, "early"), started, wrote(one.attempt, "late")))
    assert results == [(False, False, "CLAIMED", "not_started"), ACCEPTED, ACCEPTED]
    assert one.lines() == ["late"]


def test_lines_after_the_end_are_refused_and_not_kept(held):
    one = held()
    completed = {"attempt": one.attempt["id"], "event": "COMPLETED"}
    _, result = brief(one.worker.report(completed, wrote(one.attempt, "late")))
    assert result == (False, False, "COMPLETED", "attempt_superseded")
    assert one.write("later") == (False, False, "COMPLETED", "attempt_superseded")
    assert one.lines() == []
    assert not LateReport.objects.exists()


def test_lines_of_a_lost_attempt_are_refused_and_spoil_nothing(held, worker, clock):
    one = held(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.write("before", sequence=1)
    clock.advance(46)
    check_liveness()
    heir = worker(name="heir")
    clock.advance(5)
    heir.beat()
    second = heir.hold()
    assert brief(heir.report(wrote(second, "again"))) == [ACCEPTED]
    assert one.write("zombie", sequence=2)[3] == "attempt_superseded"
    assert [(item["attempt"], item["line"]) for item in one.read().json()["items"]] == [(1, "before"), (2, "again")]
    assert not LateReport.objects.exists()


def test_nobody_writes_lines_of_anothers_attempt(held, worker):
    one = held()
    other = worker(name="other")
    assert brief(other.report(wrote(one.attempt, "x"))) == [(False, False, None, "attempt_unknown")]
    assert one.lines() == []


def test_a_report_that_comes_again_stores_its_lines_once(held):
    one = held()
    assert one.write("a", sequence=0) == ACCEPTED
    assert one.write("a", sequence=0) == REPLAYED
    first, second = wrote(one.attempt, "b", sequence=1), wrote(one.attempt, "c", sequence=2)
    assert brief(one.worker.report(first, second, second)) == [ACCEPTED, ACCEPTED, REPLAYED]
    assert brief(one.worker.report(first, second)) == [REPLAYED, REPLAYED]
    assert one.write("no sequence") == ACCEPTED
    assert one.write("c", sequence=2) == REPLAYED
    assert one.write("d", sequence=7) == ACCEPTED
    assert one.lines() == ["a", "b", "c", "no sequence", "d"]


def test_a_whole_call_that_comes_again_is_a_replay(held):
    one = held()
    reports = [wrote(one.attempt, "a", sequence=0), {"attempt": one.attempt["id"], "event": "COMPLETED", "output": 1}]
    one.worker.report(*reports)
    assert brief(one.worker.report(*reports)) == [(True, True, "COMPLETED", None)] * 2
    assert one.lines() == ["a"]


def test_the_last_line_that_is_kept_and_the_first_that_is_not(held, monkeypatch):
    monkeypatch.setattr(reporting, "LINES_KEPT", 5)
    one = held()
    one.write("1", "2", "3")
    one.write("4", "5")
    assert one.lines() == ["1", "2", "3", "4", "5"]
    assert one.write("6", "7") == ACCEPTED
    assert one.write("8") == ACCEPTED
    assert one.lines() == ["1", "2", "3", "4", "5", "… further lines are not kept"]


def test_a_call_that_goes_over_the_limit_marks_it_once(held, monkeypatch):
    monkeypatch.setattr(reporting, "LINES_KEPT", 3)
    one = held()
    one.worker.report(wrote(one.attempt, "1", "2"), wrote(one.attempt, "3", "4", "5"), wrote(one.attempt, "6"))
    assert one.lines() == ["1", "2", "3", "… further lines are not kept"]


MALFORMED = [
    {"stream": None}, {"stream": "STDIN"}, {"lines": None}, {"lines": []}, {"lines": "text"}, {"lines": [1]},
    {"lines": ["x" * 8193]}, {"lines": [""] * 1001}, {"lines": ["a\0"]}, {"sequence": -1}, {"sequence": "1"},
    {"output": 1}, {"message": "x"},
]  # fmt: skip


def test_malformed_lines_are_a_400(held, subtests):
    one = held()
    for wrong in MALFORMED:
        report = {key: value for key, value in {**wrote(one.attempt, "x"), **wrong}.items() if value is not None}
        with subtests.test(str(wrong)[:40]):
            assert one.worker.post(f"/servers/{one.worker.id}/reports", {"reports": [report]}).status_code == 400
            assert one.lines() == []


def test_the_longest_line_and_the_most_lines_are_taken(held):
    one = held()
    assert one.write("x" * 8192) == ACCEPTED
    assert one.write(*[str(n) for n in range(1000)]) == ACCEPTED
    assert one.lines("?cursor=0&limit=1") == ["x" * 8192]


def test_pages_follow_each_other_oldest_first(held):
    one = held()
    one.write(*"abcde")
    first = one.read("?limit=2").json()
    second = one.read(f"?limit=3&cursor={first['next']}").json()
    assert [item["line"] for item in first["items"] + second["items"]] == list("abcde")
    assert second["next"] is None


def test_what_is_written_later_is_found_behind_the_last_line(held):
    one = held()
    assert one.read().json() == {"items": [], "next": None, "last": "0", "complete": False}
    one.write(*"ab")
    answer = one.read().json()
    assert one.read(f"?cursor={answer['last']}").json() == {**answer, "items": []}
    one.write("c")
    assert one.lines(f"?cursor={answer['last']}") == ["c"]


def test_lines_of_one_attempt_are_chosen_by_its_number(held):
    one = held()
    one.write("first")
    one.worker.report({"attempt": one.attempt["id"], "event": "RELEASED", "reason": "x"})
    one.attempt = one.worker.hold()
    one.write("second")
    assert one.lines() == ["first", "second"]
    assert one.lines("?attempt=2") == ["second"]
    assert one.lines("?attempt=3") == []


def test_json_lines_are_for_programs(held):
    one = held()
    one.write("a", "b\nc", "d")
    answer = one.read("?limit=2", Accept="application/x-ndjson")
    assert answer["Content-Type"] == "application/x-ndjson"
    assert [json.loads(line)["line"] for line in answer.content.splitlines()] == ["a", "b\nc"]
    cursor = one.read("?limit=2").json()["next"]
    assert answer["Link"] == f'</api/v1/jobs/{one.job}/logs?limit=2&cursor={cursor}>; rel="next"'
    missing = one.read("?limit=0", Accept="application/x-ndjson")
    assert (missing.status_code, missing["Content-Type"]) == (400, "application/problem+json")
    assert missing.json()["code"] == "invalid"


@pytest.mark.parametrize("query", ["?limit=0", "?limit=1001", "?cursor=x", "?attempt=0", "?colour=red"])
def test_a_malformed_query_is_a_400(held, query):
    assert held().read(query).status_code == 400


def test_only_allowed_callers_read_the_lines(held, api):
    one = held()
    one.write("secret")
    for role, status in (("viewer", 200), ("operator", 200), ("worker", 403), ("client", 404)):
        assert api(role).get(f"/jobs/{one.job}/logs").status_code == status
    assert api("viewer").get(f"/jobs/{uuid.uuid4()}/logs").status_code == 404


def test_lines_are_read_by_index_however_many_there_are(held, submit):
    one = held()
    one.write(*"abc")
    others = [submit() and one.worker.hold()["id"] for _ in range(9)]
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into jobs_logline (attempt_id, stream, line, number) "
            "select id, 'STDOUT', 'x', n from unnest(%s::uuid[]) id, generate_series(1, 1000) n", [others],
        )  # fmt: skip
        cursor.execute("analyze jobs_logline")
    with CapturedQueries(connection) as queries:
        one.read("?limit=10")
        one.write("more", sequence=1)
    read = next(query["sql"] for query in queries if "jobs_logline" in query["sql"])
    for statement in (read, executed(queries, "store_log_lines")):
        with connection.cursor() as cursor:
            cursor.execute(f"explain {statement}")
            plan = "\n".join(row[0] for row in cursor.fetchall())
        assert "logline_of_attempt" in plan
        assert "Seq Scan on jobs_logline" not in plan


@pytest.fixture
def page(admin_client, held):
    class Page:
        def __init__(self):
            self.held = held()
            self.url = f"/admin/instance/jobs/{self.held.job}/"

        def read_page(self, **headers):
            return admin_client.get(self.url, headers=headers).content.decode()

    return Page


def test_the_page_of_a_job_without_lines_has_no_log(page):
    assert "<h2>Logs" not in page().read_page()


def test_the_page_of_a_job_shows_its_last_lines_and_so_does_a_poll(page):
    one = page()
    one.held.write(*[f"line {number}." for number in range(1, 202)])
    one.held.write(HOSTILE, stream="STDERR")
    for html in (one.read_page(), one.read_page(**{"HX-Request": "true"})):
        assert "line 2." not in html
        assert "line 3." in html
        assert "line 201." in html
        assert HOSTILE not in html
        assert html.count("<li ") == 200
        assert ">err<" in html
        assert 'href="#panel-logs"' in html
        assert '<div role="tabpanel" id="panel-logs"' in html


def test_all_lines_are_a_text_in_the_admin(page, admin_client):
    one = page()
    one.held.write("a", HOSTILE)
    one.held.write("b", stream="STDERR")
    answer = admin_client.get(one.url + "logs/")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["#1 out a", f"#1 out {HOSTILE}", "#1 err b"]
    assert admin_client.get(f"/admin/instance/jobs/{uuid.uuid4()}/logs/").status_code == 404


@pytest.fixture
def log(held, admin_client):
    """Return a reader of the page that follows a log: `log.get("q=x")`."""

    class Log:
        def __init__(self):
            self.held = held()
            self.url = f"/admin/instance/jobs/{self.held.job}/log/"

        def get(self, query="", **headers):
            answer = admin_client.get(f"{self.url}?{query}", headers=headers)
            assert answer.status_code == 200
            return answer.content.decode()

        def poll(self, page):
            """Return the response to the next poll of a page, or of the response to a poll."""
            address = unescape(re.search(r'id="follow"[^>]* hx-get="([^"]+)"', page)[1])
            return self.get(address.partition("?")[2], **{"HX-Request": "true"})

    return Log()


def written_lines(page):
    """Return the lines that a page shows, as text."""
    codes = re.findall(r"<li id=.*?<code>(.*?)</code></li>", page, re.DOTALL)
    return [unescape(re.sub("</?mark>", "", code)) for code in codes]


def test_a_log_that_is_followed_gets_each_line_once_and_only_what_is_new(log):
    log.held.write("one", "two")
    page = log.get()
    assert written_lines(page) == ["one", "two"]
    log.held.write("three", HOSTILE)
    more = log.poll(page)
    assert written_lines(more) == ["three", HOSTILE]
    assert '<ol id="lines" hx-swap-oob="beforeend">' in more
    assert "<html" not in more
    assert HOSTILE not in more
    assert written_lines(log.poll(more)) == []


def test_following_ends_with_the_job_after_its_last_line(log):
    log.held.write("one")
    page = log.get()
    log.held.worker.report(
        wrote(log.held.attempt, "last"), {"attempt": log.held.attempt["id"], "event": "COMPLETED", "output": 1}
    )
    more = log.poll(page)
    assert written_lines(more) == ["last"]
    assert "hx-get" not in more
    assert "COMPLETED" in more
    assert "hx-get" not in log.get().partition('id="follow"')[2]


def test_who_is_far_behind_catches_up_before_following_ends(log, monkeypatch):
    monkeypatch.setattr(log_lines, "LINES_SHOWN", 2)
    page = log.get()
    log.held.write("1", "2", "3", "4", "5")
    log.held.worker.complete(log.held.attempt)
    seen = []
    while "hx-get" in page.partition('id="follow"')[2]:
        page = log.poll(page)
        seen += written_lines(page)
    assert seen == ["1", "2", "3", "4", "5"]


def test_one_attempt_is_followed_until_it_ends_though_the_job_continues(log, worker, clock):
    log.held.write("first")
    pages = [log.get("attempt=1"), log.get()]
    assert all("hx-get" in page.partition('id="follow"')[2] for page in pages)
    log.held.worker.report({"attempt": log.held.attempt["id"], "event": "RELEASED", "reason": "drained"})
    heir = worker(name="heir")
    second = heir.hold()
    heir.report(wrote(second, "second"))
    assert "hx-get" not in log.poll(pages[0])
    more = log.poll(pages[1])
    assert written_lines(more) == ["second"]
    assert "hx-get" in more
    assert written_lines(log.get("attempt=2")) == ["second"]
    assert f'href="?attempt={second["number"]}"' in log.get()


def test_lines_are_searched_whatever_their_case_by_stream_too_and_marked(log):
    log.held.write("an Error", "fine", HOSTILE)
    log.held.write("error: <b>", stream="STDERR")
    page = log.get("q=ERROR")
    assert written_lines(page) == ["an Error", "error: <b>"]
    assert "an <mark>Error</mark>" in page
    assert written_lines(log.get("q=error&stream=STDERR")) == ["error: <b>"]
    assert written_lines(log.get("q=%25")) == []
    assert written_lines(log.get("q=<script>")) == [HOSTILE]
    log.held.write("no match", "ERROR again")
    assert written_lines(log.poll(page)) == ["ERROR again"]


def test_earlier_lines_are_a_page_away_and_a_search_shows_its_range(log, monkeypatch):
    monkeypatch.setattr(log_lines, "LINES_SHOWN", 3)
    monkeypatch.setattr(log_lines, "LOOKED_AT", 5)
    log.held.write("find me", *[f"line {number}" for number in range(7)])
    page = log.get()
    seen = written_lines(page)
    while earlier := re.search(r'<a href="\?([^"]*before=\d+)">Earlier lines', page):
        page = log.get(unescape(earlier[1]))
        seen = written_lines(page) + seen
    assert seen == ["find me", *[f"line {number}" for number in range(7)]]
    page = log.get("q=find")
    assert written_lines(page) == []
    further = re.search(r'<a href="\?([^"]*before=\d+)">Search earlier lines', page)[1]
    assert written_lines(log.get(unescape(further))) == ["find me"]


def test_lines_of_one_attempt_that_match_are_downloaded_as_a_file(log, admin_client):
    log.held.write("find me", "not me")
    answer = admin_client.get(log.url.replace("/log/", "/logs/") + "?attempt=1&q=FIND&download=1")
    assert answer["Content-Disposition"] == f'attachment; filename="job-{log.held.job[-12:]}-attempt-1.log"'
    [line] = b"".join(answer.streaming_content).decode().splitlines()
    assert line.endswith("#1 out find me")


def test_the_lines_as_a_text_have_no_escape_codes_and_forge_no_line(log, admin_client):
    log.held.write("\x1b[2J\x9b31mred\u202e", "one\rtwo", "a\tb")
    answer = admin_client.get(log.url.replace("/log/", "/logs/"))
    lines = b"".join(answer.streaming_content).decode().removesuffix("\n").split("\n")
    assert [line.partition("#1 out ")[2] for line in lines] == [r"\x1b[2J\x9b31mred\u202e", r"one\rtwo", "a\tb"]


@pytest.mark.parametrize("query", ["", "q=x&stream=STDERR&attempt=1", "before=999", "attempt=x&before=x&after=x"])
def test_the_page_of_a_log_takes_eight_queries_at_most(log, query, django_assert_max_num_queries):
    log.held.write("x")
    with django_assert_max_num_queries(8):
        log.get(query)


def test_only_staff_with_the_permission_to_view_jobs_read_all_lines(client, page):
    url = page().url + "logs/"
    for may, status in (("liveness.view_server", 403), ("jobs.view_workerjob", 200)):
        client.force_login(employ(may))
        assert client.get(url).status_code == status


def test_a_report_that_is_sent_again_while_it_is_being_stored_is_stored_once(committed, threads):
    submit_many(1)
    one = committed()
    attempt = one.hold()
    with transaction.atomic():
        assert brief(one.report(wrote(attempt, "a", sequence=0))) == [ACCEPTED]
        again = threads(Worker(one.token, id=one.id).report, wrote(attempt, "a", sequence=0))
        assert someone_waits()
    assert brief(again.result(10)) == [REPLAYED]
    assert LogLine.objects.count() == 1
