"""The verdict covers work as well as servers, and is the same on the overview and in the API."""

import re
from html import unescape

import pytest

from jobs.services import sweep
from jobs.services.liveness_check import check_liveness
from jobs.verdict import work
from tests.integration.races.test_hot_paths import submit_many
from tests.support.celery_tasks import task
from tests.support.http import Worker

IMMEDIATELY = {"worker_task_restart_strategy": "IMMEDIATELY"}


@pytest.fixture
def read(reader):
    """Return the text of a page as a user reads it."""

    def read(path=""):
        answer = reader.get(f"/admin/instance/{path}")
        assert answer.status_code == 200
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", answer.content.decode())))

    return read


@pytest.fixture
def told(api):
    """Return the verdict of the API, or its concerns of one kind."""
    viewer = api("viewer")

    def told(kind=None):
        verdict = viewer.get("/instance").json()["verdict"]
        return verdict if kind is None else [one for one in verdict["concerns"] if one["kind"] == kind]

    return told


def test_jobs_that_will_fail_without_a_worker_are_shown_by_tags_with_the_time(told, read, worker, submit, clock):
    worker()
    check_liveness()
    for _ in range(2):
        submit(tags=["gpu"])
    clock.advance(12)
    [concern] = told("no_matching_worker")
    assert concern["text"] == "2 jobs fail in 18 s unless a worker with gpu, script becomes available"
    assert (concern["tone"], concern["jobs"], concern["seconds"]) == ("bad", 2, 18)
    assert told()["tone"] == "bad"
    assert "2 jobs fail in 18 s unless a worker with gpu, script becomes available." in read()


def test_beyond_three_sets_of_tags_it_counts(told, worker, submit):
    worker()
    for tag in "abcd":
        submit(tags=[tag])
    [concern] = told("no_matching_worker")
    assert (
        concern["text"]
        == "4 jobs fail unless workers with their tags become available (4 sets of tags), the first in 30 s"
    )


def test_no_job_is_about_to_fail_in_maintenance_which_is_no_alarm(told, api, worker, submit, clock):
    worker()
    check_liveness()
    submit(tags=["gpu"]), submit()
    api("operator").post("/maintenance/enter", {"note": "a new switch"})
    clock.advance(1)
    assert told()["concerns"] == []
    assert told()["tone"] == "well"


def test_a_missing_worker_is_a_concern(told, submit, worker):
    worker(name="face", type="WEBSERVER")
    assert [one["tone"] for one in told("no_worker")] == ["note"]
    submit()
    assert [one["text"] for one in told("no_worker")] == ["1 job waits and there is no worker"]


def lose_all(clock, *others):
    for _ in range(8):
        clock.advance(46)
        for one in others:
            one.beat()
        check_liveness()


def test_that_no_worker_is_left_after_all_were_lost_is_bad(told, read, worker, clock):
    face = worker(name="face", type="WEBSERVER")
    worker(name="worker-1", config=IMMEDIATELY), worker(name="worker-2", config=IMMEDIATELY)
    lose_all(clock, face)
    [concern] = told("no_worker")
    assert re.fullmatch(r"No worker is left: worker-\d, the last one, was lost \d+ min( \d+ s)? ago", concern["text"])
    assert (concern["tone"], told()["tone"]) == ("bad", "bad")
    assert told()["headline"] == "There is no worker"
    assert "None is silent" not in told()["text"].split("No worker is left")[0]
    assert "There is no worker" in read() and "No worker is left" in read()


def test_that_the_last_worker_ended_by_itself_is_a_worry(told, worker, submit, clock):
    worker(name="face", type="WEBSERVER")
    worker(name="worker-1").beat(state="TERMINATED_GRACEFULLY")
    assert [(one["tone"], one["text"]) for one in told("no_worker")] == [
        ("worry", "No worker is left: worker-1, the last one, ended 0 s ago")
    ]
    submit()
    [concern] = told("no_worker")
    assert concern["text"].startswith("1 job waits and there is no worker: worker-1, the last one,")
    assert concern["tone"] == "bad"


def test_a_worker_that_is_left_in_another_cluster_is_not_of_this_one(told, api, worker, clock):
    lost, left = worker(name="eu-1", cluster="eu", config=IMMEDIATELY), worker(name="us-1", cluster="us")
    face = worker(name="face", type="WEBSERVER", cluster="eu")
    lose_all(clock, left, face)
    assert told("no_worker") == [] and lost
    verdict = api("viewer").get("/instance?cluster=eu").json()["verdict"]
    assert [one["kind"] for one in verdict["concerns"]] == ["no_worker"]


def test_a_server_that_has_sent_no_heartbeat_is_not_counted_as_alive(told, read, worker, api, clock):
    worker(name="worker-1")
    check_liveness()
    Worker.register(api("worker"), name="worker-2")
    assert told()["text"] == "1 of 2 servers alive. 1 has not sent a heartbeat yet."
    assert "1 of 2 servers alive. 1 has not sent a heartbeat yet." in read()


def test_a_bad_verdict_has_its_cause_as_its_headline(reader, told, worker, submit, clock):
    one = worker(name="worker-1", config={"worker_task_restart_strategy": "NEVER"})
    other = worker(name="worker-2")
    submit()
    check_liveness()
    one.hold()
    for _ in range(4):
        clock.advance(46), other.beat(), check_liveness()
    page = reader.get("/admin/instance/").content.decode()
    verdict = re.search(r'<section class="verdict is-bad" aria-label="Verdict">.*?</section>', page, re.S)[0]
    headline = re.search(r'<h2 class="says">(.*?)</h2>', verdict)[1]
    assert headline in ("1 server is lost", "Jobs are kept by a lost server")
    assert "run on a lost server" in verdict or "runs on a lost server" in verdict
    assert not told()["text"].startswith("1 of")


def test_on_a_good_day_the_headline_counts_servers_and_lists_nothing(reader, worker, told):
    worker(name="worker-1")
    check_liveness()
    page = reader.get("/admin/instance/").content.decode()
    verdict = re.search(r'<section class="verdict is-well" aria-label="Verdict">.*?</section>', page, re.S)[0]
    assert '<h2 class="says">1 of 1 server alive. None is silent.</h2>' in verdict
    assert "<li>" not in verdict


def test_tasks_that_a_broker_gave_to_others_belong_to_the_incident(told, one, two, clock):
    check_liveness()
    for id in ("first", "second"):
        one.say(task(id))
    clock.advance(5), two.beat()
    two.say(task("first")), two.say(task("second"))
    for _ in range(4):
        clock.advance(46), two.beat(), check_liveness()
    text = told()["last_incident"]["text"]
    assert re.fullmatch(r"Last incident .* UTC: one lost, 2 jobs affected: 2 RUNNING", text)


def test_an_incident_without_jobs_shows_that(told, worker, clock):
    worker(name="worker-1", config=IMMEDIATELY)
    lose_all(clock, worker(name="worker-2"))
    assert told()["last_incident"]["text"].endswith("worker-1 lost, it held no jobs")


def test_flagged_jobs_are_shown_with_what_they_wait_for(told, read, worker, submit, clock):
    check_liveness()
    waits = submit(tags=["gpu"], unmatched="wait")
    refused = submit(unmatched="wait")
    one = worker(name="picky")
    attempt = one.hold(running=False)
    one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "not_allowed"})
    assert [one["text"] for one in told("waits_for_tags")] == ["1 job waits for a worker with gpu, script"]
    assert [one["text"] for one in told("refused_by_all")] == [
        "1 job waits because every worker with script refused it"
    ]
    seen = read()
    assert "1 job waits for a worker with gpu, script. waits_for_tags" in seen
    assert waits and refused


def test_jobs_that_wait_after_a_loss_show_what_they_wait_for(told, worker, submit, clock):
    submit(tags=["gpu"])
    worker(tags=["script", "gpu"], config=IMMEDIATELY).hold()
    for _ in range(3):
        clock.advance(46), check_liveness(), sweep.run_sweep()
    [concern] = told("waits_after_loss")
    assert concern["text"] == "1 job waits for another worker with gpu, script (the previous one is gone)"


def test_failures_a_minute_are_held_against_the_hour_before(told, worker, submit, clock):
    one = worker(max_concurrent=10)
    check_liveness()

    def fail(number):
        for _ in range(number):
            submit()
            error = {"code": "ValueError", "message": "no"}
            one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": error})

    fail(1)
    assert [(one["tone"], one["text"]) for one in told("failures")] == [("note", "1 job failed in the last 5 min")]
    clock.advance(301), one.beat(), check_liveness()
    assert told("failures") == []
    fail(4)
    [concern] = told("failures")
    assert concern["text"] == "4 jobs failed in the last 5 min, 1 in the hour before"
    assert (concern["tone"], told()["tone"]) == ("worry", "worry")


@pytest.mark.parametrize(
    ("lately", "before", "expected"),
    [
        (4, 0, "4 jobs failed in the last 5 min, none in the hour before"),
        (40, 11, "40 jobs failed in the last 5 min, 11 in the hour before"),
        (40, 36, "40 jobs failed in the last 5 min, 3 every 5 min in the hour before"),
    ],
)
def test_failures_are_shown_in_whole_numbers(lately, before, expected):
    [concern] = work.failures({"failed_lately": lately, "failed_before": before})
    assert concern.text == expected


def test_quarantine_and_the_oldest_waiting_job_are_shown(told, read, worker, submit, clock):
    one = worker()
    submit(on_worker_lost="FAIL")
    error = {"code": "WORKER_CRASHED", "message": "killed"}
    one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": error})
    assert [one["text"] for one in told("quarantine")] == ["1 job in quarantine waits for an operator"]
    submit(), submit()
    one.hold()
    clock.advance(59), one.beat()
    assert told("oldest_waiting") == []
    clock.advance(61), one.beat()
    assert [(c["tone"], c["text"]) for c in told("oldest_waiting")] == [
        ("note", "The oldest waiting job has waited 2 min")
    ]
    clock.advance(480), one.beat()
    assert [c["tone"] for c in told("oldest_waiting")] == ["worry"]
    assert "The oldest waiting job has waited 10 min." in read()


def test_cordoned_and_drained_servers_are_shown_as_notes(told, api, worker):
    operator = api("operator")
    cordoned, drained, well = worker(name="a"), worker(name="b"), worker(name="c")
    check_liveness()
    operator.post(f"/servers/{cordoned.id}/cordon", {"note": "new disk"})
    operator.post(f"/servers/{drained.id}/drain", {"note": "new disk"})
    verdict = told()
    assert verdict["tone"] == "well" and well
    assert verdict["text"] == "3 of 3 servers alive. None is silent. 1 server cordoned. 1 server draining."


def test_beyond_three_silent_servers_it_counts(told, worker, clock):
    worker(name="well")
    for number in range(4):
        worker(name=f"silent-{number}")
    check_liveness()
    clock.advance(8), check_liveness()
    [concern] = told("silent")
    assert concern["servers"] == 5 and concern["text"].startswith("5 servers are silent; first silent-0 silent for 8 s")


def test_the_last_incident_is_remembered_with_what_became_of_its_jobs(told, read, worker, submit, clock):
    submit()
    lost, heir = worker(name="worker-1", config=IMMEDIATELY), worker(name="worker-2")
    check_liveness()
    lost.hold()
    assert told()["last_incident"] is None
    for _ in range(5):
        clock.advance(46), heir.beat(), check_liveness()
    second = heir.hold()
    assert re.fullmatch(
        r"Last incident .* UTC: worker-1 lost, 1 job affected: 1 RUNNING", told()["last_incident"]["text"]
    )
    heir.complete(second)
    assert re.fullmatch(
        r"Last incident .* UTC: worker-1 lost, 1 job moved, all completed", told()["last_incident"]["text"]
    )
    assert re.search(r"Last incident [\w: ]+: worker-1 lost, 1 job moved, all completed\.", read())
    clock.step(8 * 86400)
    assert told()["last_incident"] is None


def test_a_server_that_failed_is_an_incident_as_one_that_fell_silent(told, worker, submit, clock):
    submit()
    lost, heir = worker(name="worker-1", config=IMMEDIATELY), worker(name="worker-2")
    lost.hold(), lost.beat(state="ERROR")
    for _ in range(3):
        clock.advance(10), heir.beat(), check_liveness()
    heir.complete(heir.hold())
    assert re.fullmatch(
        r"Last incident .* UTC: worker-1 lost, 1 job moved, all completed", told()["last_incident"]["text"]
    )


def test_a_silence_that_nobody_judges_has_no_countdown(told, read, worker, clock):
    server = worker(name="worker-1")
    check_liveness()
    clock.step(15)
    assert "worker-1 silent for 15 s: DISCONNECTED in 30 s" in read()
    clock.step(6)
    assert "worker-1 silent for 21 s: DISCONNECTED when liveness checks run again" in read()
    assert "Nothing until a liveness check runs" in read(f"servers/{server.id}/")


def test_the_brake_shows_when_it_begins_to_release_servers(read, worker, clock):
    silent = [worker(name=name, old=True) for name in "abc"]
    clock.advance(60)
    check_liveness()
    clock.advance(10), check_liveness()
    seen = read(f"servers/{silent[0].id}/")
    assert "held by the brake, which releases the first in 4 min 50 s. Its next heartbeat frees it." in seen


def test_a_job_on_a_silent_server_is_shown_as_silent_everywhere(reader, read, worker, submit, begin, clock):
    job = submit()
    server = worker(name="worker-1", max_concurrent=5)
    server.hold()
    run = begin({"key": "a", "action": {"type": "script", "command": "true"}})
    server.hold()
    pages = ("jobs/", f"jobs/{job['id']}/", f"servers/{server.id}/", f"executions/{run.id}/")
    check_liveness()
    for page in pages:
        assert "server silent" not in read(page), page
    for word in ("server silent", "server lost"):
        clock.advance(7 if word == "server silent" else 46)
        check_liveness()
        for page in pages:
            assert f"RUNNING, {word}" in read(page), page


def test_a_job_page_shows_what_happens_next_when_its_server_is_silent(read, worker, submit, clock):
    job = submit()
    server = worker(name="worker-1")
    server.hold()
    check_liveness()
    page = f"jobs/{job['id']}/"
    assert (
        "If worker-1 is silent for 45 s, it becomes DISCONNECTED, and the job stays there for the grace period of 5 min"
        in read(page)
    )
    clock.advance(31), check_liveness()
    assert "worker-1 is DISCONNECTED in 14 s, unless a heartbeat arrives before." in read(page)
    clock.advance(15), check_liveness()
    assert "In 5 min the grace period ends. Then the job waits for another worker." in read(page)


def test_a_crashed_worker_counts_as_a_loss(read, worker, submit):
    job, server = submit(on_worker_lost="FAIL"), worker()
    server.report(
        {"attempt": server.hold()["id"], "event": "FAILED", "error": {"code": "WORKER_CRASHED", "message": ""}}
    )
    assert "1 attempt, 1 lost" in read(f"jobs/{job['id']}/")


def test_the_silence_until_now_is_a_gap(read, worker, clock):
    server = worker()
    clock.advance(3), server.beat()
    page = f"servers/{server.id}/"
    assert "gapsnone" in read(page)
    clock.advance(20)
    assert "gaps20 s so far" in read(page)


def test_a_server_that_ended_gracefully_is_not_shown_as_lost(read, worker, clock):
    server = worker()
    server.beat(state="TERMINATED_GRACEFULLY")
    for _ in range(3):
        clock.advance(10), check_liveness()
    assert "lost while" not in read(f"servers/{server.id}/")
    assert "it ended gracefully and holds no attempt" in read(f"servers/{server.id}/")


def test_pages_that_do_not_refresh_are_no_outage(reader):
    reader.post("/admin/instance/poll/", {"every": "0", "back": "/admin/instance/"})
    page = reader.get("/admin/instance/").content.decode()
    assert 'data-stale-after="0"' in page and 'id="as-of"' in page


def test_the_verdict_costs_what_it_did(reader, worker, submit, django_assert_max_num_queries):
    worker(), submit_many(5)
    reader.get("/admin/instance/")  # the counts of the sidebar are kept for some seconds
    with django_assert_max_num_queries(8):
        reader.get("/admin/instance/")
