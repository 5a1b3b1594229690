"""Filtered lists search a limited number of rows at a time, show this limit, and continue from there."""

import html
import re
import uuid
from itertools import product

import pytest
from django.db import connection

from jobs import scan_window
from jobs.models import Attempt, Execution, LateReport, WorkerJob
from jobs.services import seeding
from liveness.models import Server, ServerEvent
from tests.support.executions import step
from tests.support.queries import CapturedQueries

pytestmark = pytest.mark.django_db

AT = "/admin/instance/"


@pytest.fixture
def looked(monkeypatch):
    """Set the number of rows that lists search at a time: `looked(2)`."""
    return lambda number: monkeypatch.setattr(scan_window, "SCAN_LIMIT", number)


@pytest.fixture
def pages(admin_client):
    """Return a function that reads all pages of a list: for each page the ids of its rows, and its text."""

    def follow(folder, query=""):
        while query is not None:
            answer = admin_client.get(f"{AT}{folder}/{query}")
            assert answer.status_code == 200
            shown = answer.content.decode()
            text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", shown))
            yield re.findall(r'<tr role="row" id="\w+-([^"]+)"', shown), text
            older = re.search(r'<a href="([^"]*)">(?:Search older ones|Older)</a>', shown)
            query = older and html.unescape(older[1])

    return lambda *address: list(follow(*address))


def ids(shown_pages):
    return [id for rows, _ in shown_pages for id in rows]


def events(*servers, actor="liveness", **fields):
    """Create one event for each of these names, in this order."""
    for name in servers:
        subject = {"subject_type": "server", "subject_id": uuid.uuid4(), "subject_name": name}
        ServerEvent.objects.create(
            **subject, server_name=name, action="cordon_server", actor=actor, reason="", **fields
        )


def happened(shown_pages):
    """Return the events on each activity page, by the names of their servers."""
    return [re.findall(r"Cordon server (\S+)", text) for _, text in shown_pages]


def test_matches_beyond_the_scan_limit_are_found_on_the_next_page(pages, submit, looked):
    looked(2)
    old = submit(tags=["gpu"], unmatched="wait")["id"]
    for _ in range(3):
        submit()
    new = submit(tags=["gpu"], unmatched="wait")["id"]
    first, second, third = pages("jobs", "?tag=gpu")
    assert (first[0], second[0], third[0]) == ([new], [], [old])
    assert "Searched the newest 2 jobs." in first[1]
    assert "No job matches: tag gpu." in second[1] and "Searched 2 more jobs." in second[1]
    assert "Searched" not in third[1]


@pytest.mark.parametrize(("number", "is_all"), [(3, True), (4, False)])
def test_a_list_mentions_its_scan_limit_only_if_it_was_reached(pages, submit, looked, number, is_all):
    looked(3)
    for _ in range(number):
        submit()
    first, *_ = pages("jobs", "?tag=none")
    assert ("Searched the newest 3 jobs." in first[1]) == (not is_all)
    assert ("≥ 0" in first[1]) == (not is_all)


@pytest.mark.parametrize("query", ["tag=script", "kind=TASK", "q=true", "server=none", "state=PENDING&tag=script"])
def test_the_pages_of_a_filtered_list_hold_every_job_once(pages, submit, looked, monkeypatch, subtests, query):
    monkeypatch.setattr("controlplane.console.views.jobs.JOBS_A_PAGE", 2)
    jobs = [submit()["id"] for _ in range(5)]
    for number in (1, 2, 3, 5, 6):
        with subtests.test(number=number):
            looked(number)
            assert ids(pages("jobs", f"?{query}")) == ([] if "server" in query else jobs[::-1])


def test_a_filter_by_state_scans_only_rows_in_this_state(pages, submit, worker, looked):
    looked(2)
    held = submit(action={"type": "script", "command": "make it"})["id"]
    worker().hold()
    for _ in range(3):
        submit()
    ((rows, text),) = pages("jobs", "?state=RUNNING&q=make")
    assert rows == [held]
    assert "Searched" not in text


@pytest.mark.parametrize("limit", [1, 50])
def test_a_job_is_found_by_its_id_and_its_key_wherever_it_is(pages, submit, looked, monkeypatch, limit):
    looked(1)
    monkeypatch.setattr("controlplane.console.views.jobs.JOBS_A_PAGE", limit)
    job = submit(key="mine")["id"]
    for _ in range(3):
        submit()
    for word in (job, "mine"):
        rows, text = pages("jobs", f"?q={word}")[0]
        assert rows == [job]
        assert "Searched the newest 1 jobs; an exact key or id is always found." in text
    assert pages("jobs", "?q=mine&state=RUNNING")[0][0] == []
    assert pages("jobs", f"?q={job}&tag=gpu")[0][0] == []
    WorkerJob.objects.filter(pk=job).update(owner=None)
    assert pages("jobs", "?q=mine")[0][0] == [job]


def test_the_count_of_matches_is_shown_as_far_as_it_was_counted(pages, submit, looked):
    looked(4)
    for _ in range(4):
        submit()
    assert "All 4 that match" in pages("jobs", "?tag=script")[0][1]
    submit()
    assert "All ≥ 4 that match" in pages("jobs", "?tag=script")[0][1]
    assert "All ≥ 4 that match" in pages("jobs", "?tag=script&state=PENDING")[0][1]
    assert "All 5 Resubmit" in pages("jobs", "")[0][1]


def test_the_jobs_of_a_server_are_found_however_many_it_had(pages, submit, worker, looked, subtests):
    one, other = worker(name="one", max_concurrent=9), worker(name="other", max_concurrent=9)
    own = []
    for server in (one, other, one, other, one):
        job = submit()["id"]
        server.claim()
        own += [job] if server is one else []
    for number in (1, 2, 3, 4):
        with subtests.test(number=number):
            looked(number)
            by_name = pages("jobs", "?server=one")
            assert ids(by_name) == ids(pages("jobs", f"?server={one.id}")) == own[::-1]
            assert ids(pages("jobs", "?server=one&state=CLAIMED&tag=script")) == own[::-1]
            assert ids(pages("jobs", "?server=one&state=PENDING")) == []
            assert ("Searched" in by_name[0][1]) == (number < 3)


def test_servers_of_one_name_are_found_together(pages, submit, worker):
    jobs = []
    for _ in range(2):
        jobs.append(submit()["id"])
        worker(name="one").claim()
    assert ids(pages("jobs", "?server=one")) == jobs[::-1]
    assert Server.objects.filter(name="one").count() == 2


def test_an_action_on_all_matches_reaches_beyond_the_scan_limit(admin_client, submit, worker, looked):
    looked(1)
    one = worker(name="one", max_concurrent=9)
    for _ in range(3):
        submit()
    one.claim()
    submit()
    for query, number in (("tag=script", 4), ("server=one", 3), ("q=true&state=PENDING", 1)):
        assert f"{number} job" in admin_client.get(f"{AT}jobs/cancel/?{query}&all=1").content.decode()


def test_the_quarantine_is_counted_and_searched_only_so_far(pages, submit, worker, looked):
    looked(2)
    one = worker(max_concurrent=9)
    first, *_ = [submit(on_worker_lost="FAIL", key=key)["id"] for key in "xyz"]
    failed = {"event": "FAILED", "error": {"code": "WORKER_CRASHED", "message": ""}}
    for attempt in one.claim():
        one.start(attempt)
        one.report({"attempt": attempt["id"], **failed})
    assert WorkerJob.objects.quarantined().count() == 3
    assert "All 3 " not in pages("quarantine")[0][1]
    assert "All ≥ 2 " in pages("quarantine")[0][1]
    assert "Searched the newest 2 quarantined jobs" in pages("quarantine", "?tag=none")[0][1]
    assert ids(pages("quarantine", "?q=x")[:1]) == [first]


def test_executions_have_a_scan_limit_and_are_found_by_key_without_it(pages, begin, looked):
    looked(2)
    runs = [begin(step("a"), name=name, key=name).id for name in ("nightly", "other", "daily", "weekly")]
    first, second = pages("executions", "?q=night")
    assert (first[0], second[0]) == ([], [runs[0]])
    assert "Searched the newest 2 executions" in first[1]
    assert pages("executions", "?q=nightly")[0][0] == [runs[0]]
    assert pages("executions", f"?q={runs[0]}")[0][0] == [runs[0]]
    assert ids(pages("executions", "?state=RUNNING")) == runs[::-1]


def listed(caller, path):
    """Return all pages of a list call: the ids on each."""
    ids_by_page, query = [], path
    while True:
        page = caller.get(query).json()
        ids_by_page.append([item["id"] for item in page["items"]])
        if page["next"] is None:
            return ids_by_page
        query = f"{path}&cursor={page['next']}"


def test_a_list_call_by_tag_continues_at_its_scan_limit(submit, api, looked):
    looked(2)
    old = submit(tags=["gpu"], unmatched="wait")["id"]
    for _ in range(3):
        submit()
    assert listed(submit.client, "/jobs?tag=gpu") == [[], [old]]
    assert listed(api("client"), "/jobs?tag=gpu") == [[]]
    assert listed(submit.client, "/jobs?tag=gpu&state=RUNNING") == [[]]


def test_the_pages_of_a_list_call_hold_every_job_once(submit, looked, subtests):
    jobs = [submit()["id"] for _ in range(7)]
    queries = ("tag=script", "kind=TASK", "kind=TASK&tag=script", "state=PENDING&tag=script")
    for query, (number, limit) in product(queries, [(1, 3), (3, 1), (2, 2), (7, 100), (8, 100)]):
        with subtests.test(query, number=number, limit=limit):
            looked(number)
            pages = listed(submit.client, f"/jobs?{query}&limit={limit}")
            assert [job for page in pages for job in page] == jobs[::-1]


def test_list_calls_find_a_key_without_a_scan_limit(submit, begin, api, looked):
    looked(1)
    job = submit(key="mine")["id"]
    run = begin(step("a"), name="first", key="mine").id
    for _ in range(3):
        submit()
        begin(step("a"), name="next")
    operator = api("operator")
    for caller in (submit.client, operator):
        assert listed(caller, "/jobs?key=mine") == listed(caller, "/jobs?key=mine&tag=script") == [[job]]
    assert listed(operator, "/executions?key=mine") == listed(operator, "/executions?name=first") == [[run]]
    assert listed(api("client"), "/executions?key=mine") == [[]]
    WorkerJob.objects.filter(pk=job).update(owner=None)
    Execution.objects.filter(pk=run).update(owner=None)
    assert listed(operator, "/jobs?key=mine") == [[job]]
    assert listed(operator, "/executions?key=mine") == [[run]]


def test_activity_has_a_scan_limit_and_continues_there(pages, db, looked):
    looked(2)
    events("a", actor="operator:eve")
    events("b", "c", "d")
    first, second = pages("activity", "?who=eve")
    assert happened([first, second]) == [[], ["a"]]
    assert re.search(r"No event matches: who eve\. .* Searched the last .*\.", first[1])
    assert "Searched" not in second[1]


@pytest.mark.parametrize("query", ["who=liveness", "kind=action", "kind=action&who=live", "server=a&who=live", ""])
def test_the_pages_of_activity_hold_everything_once(pages, db, looked, monkeypatch, subtests, query):
    monkeypatch.setattr("controlplane.console.views.activity.ENTRIES_A_PAGE", 2)
    events(*"aabbaa")
    for number in (1, 2, 3, 6, 7):
        with subtests.test(number=number):
            looked(number)
            names = [name for page in happened(pages("activity", f"?{query}")) for name in page]
            assert names == list("aaaa" if "server" in query else "aabbaa")


def test_the_activity_of_an_ended_server_is_found_although_others_are_busy(pages, db, looked):
    looked(2)
    events("gone", "other", "busy", "busy", "busy")
    ((_, text),) = pages("activity", "?server=gone")
    assert happened([(None, text)]) == [["gone"]]
    assert "Searched" not in text


def test_interrupted_attempts_and_superseded_reports_are_found_by_server(pages, submit, worker, looked):
    one, other = worker(name="one", max_concurrent=9), worker(name="other", max_concurrent=9)
    for _ in range(4):
        submit()
    held = [(server, server.claim(limit=1)[0]) for server in (one, other, one, other)]
    for server, attempt in held:
        server.start(attempt)
        server.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "not_allowed"})
        server.complete(attempt)
    assert (Attempt.objects.filter(state="RESUBMITTED").count(), LateReport.objects.count()) == (4, 4)
    words = {
        "attempt": r"attempt 1 of true on",
        "refusal": "superseded report completed of attempt 1 of true from",
    }
    for number, (kind, word) in product((1, 2, 3), words.items()):
        looked(number)
        shown_pages = pages("activity", f"?server=one&kind={kind}")
        names = [name for _, text in shown_pages for name in re.findall(rf"{word} (\w+)", text)]
        assert names == ["one", "one"], (kind, number)
        assert ("Searched" in shown_pages[0][1]) == (number == 1), (kind, number)


def test_a_filtered_page_is_at_most_eight_queries(admin_client, db, looked):
    seeding.seed_database(3, 400)
    looked(20)
    name = Server.objects.order_by("pk").values_list("name", flat=True).first()
    everything = f"server={name}&tag=gpu&q=none&state=COMPLETED&before={WorkerJob.objects.order_by('-pk')[5].pk}"
    for page in (f"jobs/?{everything}", f"quarantine/?{everything}", "executions/?q=none&state=COMPLETED",
                 f"activity/?server={name}&who=none&kind=server"):  # fmt: skip
        with CapturedQueries(connection) as queries:
            assert admin_client.get(AT + page).status_code == 200
        assert len(queries) <= 8, page
