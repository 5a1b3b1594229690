"""Failed jobs: their details, how they are found, and errors in groups."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import User

from jobs.models import WorkerJob

PAGES = "/admin/instance/"
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no row 17'


@pytest.fixture
def boss(client, db):
    client.force_login(User.objects.create_superuser("ann"))
    return client


@pytest.fixture
def fail(submit, worker):
    """Return a failed job with the error that its worker reported."""
    one = worker(name="worker-1", max_concurrent=100)

    def fail(message="no row 17", code="ValueError", **said):
        job = submit(**said)
        error = {"code": code, "message": message, "traceback": TRACEBACK}
        one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": error})
        return job["id"]

    return fail


@pytest.fixture
def words(boss):
    def words(path):
        answer = boss.get(PAGES + path)
        assert answer.status_code == 200
        return re.sub(r"[ \n]+", " ", unescape(re.sub(r"<[^>]+>", "", answer.content.decode())))

    return words


@pytest.fixture
def listed(boss):
    return lambda query: set(re.findall(r'id="job-([^"]+)"', boss.get(f"{PAGES}jobs/?{query}").content.decode()))


def test_a_job_has_the_name_that_its_client_gave_it_otherwise_its_action(submit, words, boss):
    named, other = submit(name="Nightly report"), submit()
    assert (named["name"], other["name"]) == ("Nightly report", "")
    assert "<h1>Nightly report</h1>" in boss.get(f"{PAGES}jobs/{named['id']}/").content.decode()
    unnamed = boss.get(f"{PAGES}jobs/{other['id']}/").content.decode()
    assert "<h1>true</h1>" in unnamed and '<code class="action">script: true</code>' in unnamed
    assert ">Nightly report</a>" in boss.get(f"{PAGES}jobs/").content.decode()


def test_a_resubmitted_job_keeps_its_name(fail, api):
    new = api("operator").post(f"/jobs/{fail(name='Nightly')}/resubmit", {}).json()
    assert new["name"] == "Nightly"


def test_each_attempt_shows_its_traceback_as_text(fail, boss, words):
    job = fail()
    page = unescape(boss.get(f"{PAGES}jobs/{job}/").content.decode())
    assert f"<code>{TRACEBACK}</code>" in page
    assert "#1 on worker-1: ValueError no row 17" in words(f"jobs/{job}/")
    assert "<h2>Error</h2>" not in page, "nothing is left to tell"


def test_durations_have_decimals_and_the_end_of_an_attempt_has_its_actor(submit, worker, clock, words):
    job, one = submit(), worker()
    clock.advance(1.25)
    attempt = one.hold()
    clock.advance(0.5)
    assert "Waited 1.25 s, has run for 0.5" in words(f"jobs/{job['id']}/")
    clock.advance(2), one.complete(attempt)
    seen = words(f"jobs/{job['id']}/")
    assert "Waited 1.25 s, ran 2.50 s " in seen
    assert "by server" in seen


def test_a_job_that_runs_longer_than_usual_or_writes_nothing_says_so(submit, worker, clock, words):
    one = worker(max_concurrent=20)
    for _ in range(5):
        submit(name="nightly")
        attempt = one.hold()
        clock.advance(3)
        one.complete(attempt), one.beat()
    job, other = submit(name="nightly"), submit(name="rare")
    first = one.hold()
    second = one.hold()
    clock.advance(5)
    one.report({"attempt": first["id"], "event": "LOG", "stream": "STDOUT", "lines": ["begins"]})
    assert "has run for 5.00 s " in words(f"jobs/{job['id']}/")
    clock.advance(7)
    assert "has run for 12.0 s, 4 × as long as usual (3.00 s) " in words(f"jobs/{job['id']}/")
    clock.advance(60)
    assert "24 × as long as usual (3.00 s); no output for 1 min 7 s" in words(f"jobs/{job['id']}/")
    assert "no output" not in words("jobs/") + words(f"jobs/{other['id']}/"), "most jobs write little"
    clock.advance(600)
    one.report({"attempt": first["id"], "event": "LOG", "stream": "STDOUT", "lines": ["goes on"]})
    assert words("jobs/").count("no output for") == words("jobs/").count("no output for 11 min ") == 1
    assert "no output for 11 min " in words(f"jobs/{other['id']}/")
    one.complete(second)
    assert "no output" not in words("jobs/")
    assert "usual" not in words(f"jobs/{other['id']}/")


def test_what_waits_again_does_not_read_as_if_it_had_waited_once(submit, worker, clock, words):
    job, one = submit(), worker()
    clock.advance(1.25), one.hold()
    clock.advance(2)
    submit.client.post(f"/jobs/{job['id']}/resubmit", {})
    clock.advance(3)
    assert "Waited 1.25 s, ran 2.0" in (seen := words(f"jobs/{job['id']}/"))
    assert "has been waiting again for 3.0" in seen


def test_what_a_superseded_worker_reported_is_shown(submit, worker, api, words):
    job, one = submit(), worker()
    attempt = one.hold()
    api("operator").post(f"/jobs/{job['id']}/fail", {"note": "stuck"})
    one.complete(attempt, {"answer": 41})
    seen = words(f"jobs/{job['id']}/")
    assert "Content" in seen and '"answer": 41' in seen
    assert "stuck" in seen


def test_the_error_that_a_superseded_worker_reported_is_text(submit, worker, api, boss, words):
    job, one = submit(), worker()
    attempt = one.hold()
    api("operator").post(f"/jobs/{job['id']}/fail", {"note": "stuck"})
    error = {"code": "ValueError", "message": "no row 17", "traceback": TRACEBACK}
    one.report({"attempt": attempt["id"], "event": "FAILED", "error": error})
    assert f"<code>{TRACEBACK}</code>" in unescape(boss.get(f"{PAGES}jobs/{job['id']}/").content.decode())
    assert "Content: ValueError" in words(f"jobs/{job['id']}/")


def test_the_heartbeats_of_an_attempt_itself_are_ticks_of_its_lane(submit, worker, clock, boss, words):
    job, one = submit(), worker()
    attempt = one.hold()
    for _ in range(3):
        clock.advance(10)
        one.beat(running=[{"attempt": attempt["id"], "pid": 7}])
    clock.advance(5)
    one.beat()
    page = boss.get(f"{PAGES}jobs/{job['id']}/").content.decode()
    [ticks] = re.findall(r'<g class="beats is-own"><title>heartbeats of the attempt</title>(.*?)</g>', page)
    assert ticks.count("<line") == 3
    assert "last heartbeat of the attempt" in words(f"jobs/{job['id']}/")


def test_jobs_are_found_by_parts_of_their_id_by_error_by_name_and_by_handler(fail, submit, listed):
    job = fail("no row 17", "KeyError", name="Nightly report")
    other = fail("other", action={"type": "callable", "path": "shop.orders:send"}, tags=["script"])
    for word in (job[-12:], job[:-6], "KeyError", "row 17", "nightly"):
        assert listed(f"q={word}") == {job}, word
    assert listed("q=orders:send") == {other}
    assert listed("code=KeyError") == {job}


def test_a_job_is_found_by_the_beginning_of_its_id_wherever_it_is(submit, listed, monkeypatch):
    monkeypatch.setattr("jobs.scan_window.SCAN_LIMIT", 2)
    first = submit()["id"]
    for _ in range(3):
        submit()
    assert listed(f"q={first[:-2]}") == {first}


def test_errors_are_grouped_by_code_and_message_with_what_resubmits_them(fail, boss, words):
    for number in (17, 18, 19):
        fail(f"no row {number}")
    fail("no disk", "OSError")
    seen = words("jobs/errors/")
    assert re.search(r"ValueError no row 19 ?3 jobs", seen) and re.search(r"OSError no disk ?1 job ", seen)
    page = boss.get(f"{PAGES}jobs/errors/").content.decode()
    [again] = [unescape(url) for url in re.findall(r'href="([^"]+all=1[^"]*)"', page) if "ValueError" in url]
    form = boss.get(again).content.decode()
    assert "Resubmit: 3 jobs" in form
    hidden = dict(re.findall(r'name="(seen|until|key)" value="([^"]*)"', form))
    assert boss.post(again, {**hidden, "note": "mended"}).status_code == 302
    assert WorkerJob.objects.exclude(resubmission_of=None).count() == 3
    assert "Resubmit: 3 jobs" not in boss.get(again).content.decode()


def test_the_list_shows_duration_server_and_reason(fail, words, boss):
    fail(tags=["script"])
    seen = words("jobs/")
    for head in ("Duration", "Server", "Tags", "Reason"):
        assert head in seen
    assert "ValueError no row 17" in seen and ">worker-1</a>" in boss.get(f"{PAGES}jobs/").content.decode()
