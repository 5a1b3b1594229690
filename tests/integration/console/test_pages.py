"""Instance pages: their content, their number of queries, and the permissions they need."""

import re
import uuid
from collections import Counter
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.urls import reverse

from controlplane.console.charts import layouts, machine
from controlplane.console.formatting import page_url
from jobs.choices import OnWorkerLost
from jobs.permissions import VIEWS
from jobs.services.liveness_check import check_liveness
from jobs.states import AttemptState, ExecutionState, JobKind, JobState
from liveness import states
from liveness.models import OF_NAMESPACE
from liveness.selectors.clock import database_time
from liveness.services import tokens
from liveness.states import ServerState
from tests.support.people import employ
from tests.support.plans import executed
from tests.support.queries import CapturedQueries

HOSTILE = "<script>alert(1)</script>"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def story(worker, submit, clock):
    """Create a job whose worker became silent, whose second attempt completed, and whose first worker reported late."""
    job = submit(payload={"text": HOSTILE})
    lost, heir = worker(name="worker-lost"), worker(name="worker-heir")
    attempt = lost.hold()
    for seconds in (46, 301):
        clock.advance(seconds)
        heir.beat()
        check_liveness()
    second = heir.hold()
    clock.advance(5)
    heir.beat()
    lost.complete(attempt, {"answer": 41})
    heir.complete(second, {"answer": 42})
    return job["id"], lost.id, heir.id


def text(answer):
    """Return the visible text of a page."""
    assert answer.status_code in (200, 286)
    words = re.sub(r"<[^>]+>", "", answer.content.decode())
    return re.sub(r"\s+", " ", words)


def test_an_empty_overview_explains_how_to_start(reader):
    assert "create_token --role worker" in text(reader.get("/admin/instance/"))
    assert "controlplane-agent --url http://testserver" in text(reader.get("/admin/instance/"))
    assert "curl http://testserver/api/v1/jobs" in text(reader.get("/admin/instance/jobs/"))


def test_the_verdict_is_positive_if_all_is_well(reader, worker):
    worker()
    check_liveness()
    assert "1 of 1 server alive. None is silent." in text(reader.get("/admin/instance/"))


def test_the_verdict_names_silent_servers_and_what_follows(reader, worker, submit, clock):
    submit()
    silent, well = worker(name="worker-2"), worker(name="worker-1")
    silent.hold()
    clock.advance(50)
    well.beat()
    silent.beat()
    clock.advance(31)
    well.beat()
    check_liveness()
    page = text(reader.get("/admin/instance/"))
    assert re.search(
        r"1 server is silent .*worker-2 silent for 31 s: DISCONNECTED in 1[34] s, 1 job then waits 5"
        r".*1 of 2 servers alive\.",
        page,
    )


@pytest.mark.parametrize(("silent", "well"), [(2, 9), (2, 10), (2, 11), (12, 1), (13, 1)])
def test_the_overview_shows_twelve_servers_those_that_need_attention_first(reader, worker, clock, silent, well):
    for number in range(silent):
        worker(name=f"silent-{number}")
    clock.advance(31)
    for number in range(well):
        worker(name=f"well-{number}")
    check_liveness()
    answer = reader.get("/admin/instance/")
    page, shown_text = answer.content.decode(), text(answer)
    rows = re.findall(r'<tr role="row" id="server-.*?>((?:silent|well)-\d+)</a>', page, re.DOTALL)
    shown = [name.partition("-")[0] for name in rows]
    assert (shown.count("silent"), shown.count("well")) == (min(12, silent), min(12 - min(12, silent), well))
    assert f"{well} of {silent + well} servers alive" in shown_text
    assert (f"{silent} servers are silent; first silent-0 silent for 31 s" in shown_text) == (silent > 3)
    assert ("1 more need attention" in shown_text) == (silent == 13)
    more = silent + well - 12
    assert (f"All {silent + well} servers ({more} more)" in shown_text) == (more > 0)


def test_the_overview_shows_gaps_in_the_heartbeats_of_its_servers(reader, worker, clock):
    silent, well = worker(name="silent"), worker(name="well")
    for _ in range(6):
        clock.advance(3)
        silent.beat()
        well.beat()
    for _ in range(5):
        clock.advance(3)
        well.beat()
    check_liveness()
    page = reader.get("/admin/instance/").content.decode()
    strips = dict(re.findall(r'/">(silent|well)</a>.*?<svg class="strip" .*?aria-label="([^"]+)"', page, re.DOTALL))
    assert strips == {
        "silent": "the last 7 heartbeats, 4 missing",
        "well": "the last 12 heartbeats, 0 missing",
    }


@pytest.mark.parametrize("what", ["server", "job", "execution"])
def test_an_unknown_object_gets_a_link_to_its_list(reader, what):
    answer = reader.get(f"/admin/instance/{what}s/{uuid.uuid4()}/")
    assert answer.status_code == 404
    assert f'<a href="/admin/instance/{what}s/">All {what}s</a>' in answer.content.decode()


def test_a_page_explains_the_states_that_it_shows(reader, story):
    job, lost, _ = story
    for page, shown in {
        "": [ServerState],
        f"servers/{lost}/": [ServerState, AttemptState],
        "jobs/": [JobState],
        f"jobs/{job}/": [JobState, AttemptState],
        "executions/": [ExecutionState, JobState],
    }.items():
        whole = unescape(text(reader.get(f"/admin/instance/{page}")))
        assert [state for states in shown for state in states if state.meaning not in whole] == []
    polled = text(reader.get(f"/admin/instance/jobs/{job}/", headers=HTMX))
    assert "What the states mean" not in polled


def test_a_silent_server_is_never_drawn_as_running(reader, worker, clock):
    silent = worker()
    page = f"/admin/instance/servers/{silent.id}/"
    clock.advance(5)
    assert 'class="badge s-RUNNING"' in reader.get(page, headers=HTMX).content.decode()
    clock.advance(2)
    content = reader.get(page, headers=HTMX).content.decode()
    assert 'class="badge s-SILENT"' in content
    assert "s-RUNNING" not in content.partition("<h2>Events")[0]


def test_a_worker_that_is_late_and_not_yet_stale_takes_work_still(reader, worker, submit, clock):
    worker(), submit()
    clock.advance(7)
    page = text(reader.get("/admin/instance/"))
    assert "silent for 7 s" in page
    assert "no worker takes work" not in page
    clock.advance(3)
    assert "1 job waits and no worker takes work." in text(reader.get("/admin/instance/"))


def test_a_check_that_does_not_run_is_a_warning(reader, worker, clock):
    server = worker()
    assert "The liveness check has never run" in text(reader.get("/admin/instance/"))
    check_liveness()
    clock.advance(31)
    server.beat()
    assert "The last liveness check was 31 s ago" in text(reader.get("/admin/instance/"))


def test_a_check_in_the_future_after_the_clock_was_set_back_is_a_warning(reader, worker, clock):
    worker()
    check_liveness()
    clock.step(-3600)
    assert "lost servers are not detected" in text(reader.get("/admin/instance/"))


def test_waiting_jobs_that_no_worker_takes_are_a_warning(reader, worker, submit):
    worker().beat(schedulable=False, reason="disk full")
    submit()
    assert "1 job waits and no worker takes work." in text(reader.get("/admin/instance/"))


def test_a_server_page_shows_what_happens_next(reader, worker, submit, clock):
    submit()
    server = worker()
    server.hold()
    page = f"/admin/instance/servers/{server.id}/"
    assert "After 45 s of silence: DISCONNECTED." in text(reader.get(page))
    clock.advance(46)
    assert "DISCONNECTED at the next liveness check" in text(reader.get(page))
    check_liveness()
    assert "In 5 min its grace period of 5 min ends" in text(reader.get(page))
    clock.advance(301)
    assert "Its remaining jobs move at the next liveness check" in text(reader.get(page))


def test_every_age_and_countdown_has_its_moment_in_the_title(reader, worker, submit, clock):
    job = submit(good_until=(database_time() + timedelta(minutes=5)).isoformat(), tags=["quantum"])
    submit()
    silent = worker()
    silent.hold()
    clock.advance(31)
    check_liveness()
    counts = Counter()
    for page in ("", "servers/", f"servers/{silent.id}/", f"jobs/{job['id']}/", "recovery/?claimed=0&running=0"):
        content, now = reader.get(f"/admin/instance/{page}").content.decode(), database_time()
        counted = re.findall(
            r'<time datetime="([^"]+)" title="([-\d]+) ([:\d]+) UTC" data-(age|left)="([.\d]+)">', content
        )
        assert len(counted) == len(re.findall("data-(?:age|left)=", content))
        for at, day, time, kind, seconds in counted:
            assert at.startswith(f"{day}T{time}") and at.endswith("+00:00")
            ahead = (datetime.fromisoformat(at) - now).total_seconds()
            assert abs(ahead - (float(seconds) if kind == "left" else -float(seconds))) < 5, (page, kind, at)
            counts[kind, page.partition("/")[0]] += 1
    assert set(counts) >= {("left", ""), ("left", "servers"), ("left", "jobs"), ("age", "recovery")}


def test_a_job_page_shows_its_attempts_as_lanes_and_as_a_table(reader, story):
    job, *_ = story
    answer = reader.get(f"/admin/instance/jobs/{job}/")
    page = answer.content.decode()
    for drawn in (
        "#1 worker-lost",
        "#2 worker-heir",
        'class="mark is-lost"',
        'class="mark is-superseded"',
        'class="arrow',
    ):
        assert drawn in page
    assert "server worker-lost is DISCONNECTED" in text(answer)
    assert "attempt_superseded" in text(answer)


def test_a_job_page_shows_progress_and_last_message_of_a_running_attempt(reader, worker, submit):
    page = f"/admin/instance/jobs/{submit()['id']}/"
    server = worker()
    attempt = server.hold()
    assert "<progress" not in reader.get(page).content.decode()
    server.report({"attempt": attempt["id"], "event": "PROGRESS", "progress": 0.4, "message": HOSTILE})
    content = reader.get(page).content.decode()
    assert '<progress max="1" value="0.4"' in content and "RUNNING 40 %" in content
    assert "&lt;script&gt;alert(1)" in content and HOSTILE not in content
    server.complete(attempt)
    assert "<progress" not in reader.get(page).content.decode()


@pytest.mark.parametrize("strategy", OnWorkerLost)
def test_a_job_page_explains_what_follows_if_its_worker_is_lost(reader, submit, strategy):
    job = submit(on_worker_lost=strategy.value)
    page = reader.get(f"/admin/instance/jobs/{job['id']}/").content.decode()
    assert f"<dt>If the worker is lost</dt><dd>{strategy.meaning}</dd>" in page
    assert f"<dt>Origin</dt><dd>{JobKind.TASK.meaning}</dd>" in page


def test_a_failed_job_shows_its_error_first_and_whether_it_is_in_quarantine(reader, worker, submit):
    for code, is_kept in (("WORKER_CRASHED", True), ("ValueError", False)):
        job, server = submit(on_worker_lost="FAIL"), worker(name=code)
        error = {"code": code, "message": "no such row"}
        server.report({"attempt": server.hold()["id"], "event": "FAILED", "error": error})
        head = text(reader.get(f"/admin/instance/jobs/{job['id']}/")).partition("Attempts")[0]
        assert f"{code} no such row" in head
        assert ("It is in quarantine: resubmit or dismiss it." in head) is is_kept


@pytest.mark.parametrize(("unmatched", "expected"), [("fail", True), ("wait", False)])
def test_a_waiting_job_shows_why_it_waits_and_what_happens_next(reader, worker, submit, unmatched, expected):
    job = submit(tags=["quantum"], unmatched=unmatched, good_until="2199-01-01T00:00:00Z")
    worker(name="plain")
    worker(name="front-office", type="WEBSERVER")
    page = text(reader.get(f"/admin/instance/jobs/{job['id']}/"))
    assert "No alive server may run it now. Ruled out by tags: 1." in page
    assert "1 alive server is of a type that does not run such jobs." in page and "front-office" not in page
    assert "it lacks quantum" in page and "It becomes EXPIRED in" in page
    assert ("It fails with NO_MATCHING_WORKER in 30 s" in page) == expected


def test_recent_activity_shows_actor_action_and_reason(reader, story):
    page = text(reader.get("/admin/instance/"))
    assert "superseded report completed of attempt 1 of true from worker-lost" in page
    assert "attempt 1 of true on worker-lost" in page
    assert "silent for 4" in page


def test_jobs_are_listed_a_page_at_a_time_and_by_state(reader, submit):
    command = {"action": {"type": "script", "command": "true"}}
    submit.client.post("/jobs", [command] * 51)
    first = reader.get("/admin/instance/jobs/?state=PENDING").content.decode()
    assert first.count('id="job-') == 50
    (older,) = re.findall(r'href="(\?[^"]*before=[^"]+)"', first)
    rest = reader.get("/admin/instance/jobs/" + older.replace("&amp;", "&")).content.decode()
    assert rest.count('id="job-') == 1
    assert reader.get("/admin/instance/jobs/?state=FAILED").content.decode().count('id="job-') == 0
    assert reader.get("/admin/instance/jobs/?state=no&before=no").status_code == 200


@pytest.mark.parametrize("headers", [{}, HTMX])
@pytest.mark.parametrize("is_administrator", [True, False], ids=["an administrator", "who views one namespace"])
def test_no_page_costs_more_than_eight_queries(reader, client, story, worker, submit, headers, is_administrator):
    if not is_administrator:
        tokens.make_permissions("default")
        client.force_login(employ(*VIEWS.values(), f"liveness.{OF_NAMESPACE}default"))
        reader = client
    job, lost, heir = story
    for number in range(5):
        submit()
        worker(name=f"more-{number}", instance_id=str(uuid.uuid4())).hold()
    back = submit()
    worker(name="gives-back").hold()
    submit.client.post(f"/jobs/{back['id']}/resubmit", {})
    for page in (
        "", "servers/", "servers/?type=WORKER&attention=1&q=more", f"servers/{lost}/", f"servers/{heir}/", "jobs/",
        f"jobs/?state=FAILED&tag=gpu&server={lost}&q=x", f"jobs/{job}/", f"jobs/{back['id']}/", "activity/",
        "activity/?kind=attempt&server=x&who=y", "quarantine/", "quarantine/?q=x", "recovery/", "jobs/errors/",
        "jobs/errors/?tag=gpu&q=x", f"jobs/{job}/log/?q=x", "executions/?state=FAILED&q=x", "triggers/?q=x", "trends/",
        "queues/?tag=x", "holds/",
        "trends/?cluster=default", "?cluster=default", "batches/", "alerts/?rule=brake", "maintenance/",
        "brake/?cluster=x",
    ):  # fmt: skip
        with CapturedQueries(connection) as queries:
            answer = reader.get(f"/admin/instance/{page}", headers=headers)
        assert answer.status_code in (200, 286) and len(queries) <= 8, page
        tells_numbers = "waiting, " in answer.content.decode()
        assert tells_numbers or page.endswith(f"server={lost}&q=x"), f"{page}: its tabs have no numbers"


@pytest.mark.parametrize(("page", "statement"), [("", "read_figures"), ("jobs/", "read_job_counts")])
def test_frequent_queries_of_the_pages_are_planned_once(reader, story, page, statement):
    for _ in range(2):
        with CapturedQueries(connection) as queries:
            reader.get(f"/admin/instance/{page}")
    assert executed(queries, statement)


def test_the_address_of_a_page_is_the_one_that_leads_there():
    for name in ("server", "job", "execution", "trigger"):
        for id in (uuid.uuid4(), str(uuid.uuid4())):
            assert page_url(name, id) == reverse(f"instance:{name}", args=[id])


def test_hostile_input_is_shown_as_text_and_nothing_is_inline(reader, worker, submit):
    job = submit(payload={HOSTILE: HOSTILE}, tags=[HOSTILE], action={"type": "script", "command": HOSTILE})
    server = worker(name=HOSTILE, tags=["script", HOSTILE], version=HOSTILE)
    attempt = server.hold()
    error = {"code": HOSTILE, "message": HOSTILE}
    pages = ("", "jobs/", f"jobs/{job['id']}/", f"servers/{server.id}/")
    for _ in range(2):
        for page in pages:
            content = reader.get(f"/admin/instance/{page}").content.decode()
            assert HOSTILE not in content
            assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", content)
        server.report({"attempt": attempt["id"], "event": "FAILED", "error": error})


def test_servers_are_found_by_the_filter_in_the_address(reader, worker, clock):
    others = [
        worker(name="east-gpu", cluster="east", tags=["gpu"], version="2.0"),
        worker(name="east-cpu", cluster="east", tags=["cpu"], version="1.0"),
    ]
    late = worker(name="west-gpu", cluster="west", tags=["gpu"], version="1.0", hostname="box-7")

    def listed(query):
        page = reader.get(f"/admin/instance/servers/?{query}").content.decode().partition('id="history"')[0]
        return set(re.findall(r'servers/[-0-9a-f]+/">([^<]+)</a>', page))

    assert listed("") == {"east-gpu", "east-cpu", "west-gpu"}
    assert listed("cluster=east") == {"east-gpu", "east-cpu"}
    assert listed("tag=gpu&version=1.0") == {"west-gpu"}
    assert listed("q=EAST") == {"east-gpu", "east-cpu"}
    assert listed("q=box-7") == listed(f"q={late.id}") == {"west-gpu"}
    assert listed("type=WORKER&state=RUNNING") == {"east-gpu", "east-cpu", "west-gpu"}
    assert listed("attention=1") == set()
    clock.advance(46)
    for other in others:
        other.beat()
    check_liveness()
    assert listed("attention=1") == listed("state=DISCONNECTED&cluster=west") == {"west-gpu"}
    page = reader.get("/admin/instance/servers/?cluster=north&tag=gpu")
    assert "No server matches: cluster north, tag gpu." in text(page) and "Clear the filter" in text(page)


def test_an_invalid_filter_value_filters_nothing_and_shows_an_error(reader, worker):
    worker(name="one")
    page = reader.get("/admin/instance/servers/?state=GREEN&page=x").content.decode()
    assert ">one</a>" in page and "errorlist" in page


def test_ended_servers_fold_under_history_unless_they_are_asked_for(reader, worker, clock):
    gone, here = worker(name="gone"), worker(name="here")
    worker(name="lost", config={"worker_task_restart_strategy": "IMMEDIATELY"})
    gone.beat(state="TERMINATED_GRACEFULLY")
    for _ in range(8):
        clock.advance(10)
        here.beat()
        check_liveness()
    page = reader.get("/admin/instance/servers/").content.decode()
    table, _, history = page.partition('<details id="history">')
    assert (">gone</a>" in table, ">gone</a>" in history) == (False, True)
    assert history.index(">lost</a>") < history.index("heartbeats stopped") < history.index(">gone</a>")
    assert history.count("heartbeats stopped") == 1
    assert 'href="?state=ended"' in history
    for state, is_listed in (("INACTIVE", True), ("ended", True), ("NOT_RUNNING", False)):
        page = reader.get(f"/admin/instance/servers/?state={state}").content.decode()
        assert (">gone</a>" in page) is is_listed
        assert ">here</a>" not in page and "history" not in page


def test_ended_servers_are_paged_and_links_keep_the_other_filters(reader, worker, clock):
    here = worker(name="east-0", cluster="east")
    gone = [worker(name=f"east-{number}", cluster="east") for number in range(1, 28)]
    for server in [*gone, worker(name="west-1", cluster="west")]:
        server.beat(state="TERMINATED_GRACEFULLY")
    for _ in range(3):
        clock.advance(10)
        here.beat()
        check_liveness()
    page = reader.get("/admin/instance/servers/?cluster=east").content.decode()
    assert len(re.findall(r">east-\d+</a>", page)) == 1 + 10 and 'href="?cluster=east&amp;state=ended"' in page
    names = set()
    for number in (1, 2):
        page = reader.get(f"/admin/instance/servers/?cluster=east&state=ended&page={number}").content.decode()
        names |= set(re.findall(r">((?:east|west)-\d+)</a>", page))
    assert names == {f"east-{number}" for number in range(1, 28)}


def test_a_version_that_others_do_not_have_is_marked(reader, worker):
    for number in range(2):
        worker(name=f"usual-{number}", version="2.0")
    worker(name="odd", version="1.9")
    page = text(reader.get("/admin/instance/servers/"))
    assert page.count("others: 2.0") == 1


def test_the_state_machine_shows_the_current_state_and_the_path_with_times(reader, worker, clock):
    lost = worker()
    clock.advance(46)
    check_liveness()
    page = reader.get(f"/admin/instance/servers/{lost.id}/").content.decode()
    wide, tall = re.findall(r'<svg class="is-(?:wide|tall)".*?</svg>', page, re.DOTALL)
    for drawing in (wide, tall):
        assert re.findall(r'class="node is-now s-(\w+)"', drawing) == ["DISCONNECTED"]
        assert drawing.count('class="node was"') == 2
        assert drawing.count('class="edge is-passed"') == 2
        assert re.search(r'class="time"[^>]*>4[67] s<', drawing)
    assert 'class="strip is-over"' in page and page.count("h4.5v") > 10, "its silence is hollow, and nothing is green"


def test_the_page_of_a_server_shows_its_capabilities(reader, worker):
    can = {"python": "3.11", "runtimes": {"node": "22", "java": "21"}, "queues": ["a", "b"]}
    page = text(reader.get(f"/admin/instance/servers/{worker(capabilities=can).id}/"))
    for words in ("Capabilities", "java 21, node 22", "a, b"):
        assert words in page


@pytest.mark.parametrize("layout", [layouts.WIDE, layouts.TALL])
def test_every_legal_transition_is_drawn(layout):
    assert set(layout.places) == set(ServerState)
    assert set(layout.ways) == {machine.find_edge(*pair) for pair in states.legal_transitions()}
    assert set(layout.back) == {machine.find_edge(*pair) for pair in states.reactivation_transitions()}


def test_jobs_are_found_by_the_filter(reader, worker, submit):
    by_tag = submit(tags=["gpu"], unmatched="wait")["id"]
    held = submit(action={"type": "script", "command": "make the report"})["id"]
    server = worker(name="holder")
    server.hold()

    def listed(query):
        return set(re.findall(r'id="job-([^"]+)"', reader.get(f"/admin/instance/jobs/?{query}").content.decode()))

    assert listed("") == listed("kind=TASK") == {by_tag, held}
    assert listed("tag=gpu") == listed(f"q={by_tag}") == listed("state=PENDING") == {by_tag}
    assert listed("server=holder") == listed(f"server={server.id}") == listed("q=REPORT") == {held}
    assert "No job matches: state RUNNING, tag gpu." in text(reader.get("/admin/instance/jobs/?state=RUNNING&tag=gpu"))
    counts = reader.get("/admin/instance/jobs/?tag=gpu").content.decode()
    assert re.search(
        r'href="/admin/instance/jobs/\?tag=gpu&amp;state=PENDING"[^>]*>.*?Pending <span class="figure">1<', counts, re.S
    )


def test_activity_is_found_by_kind_server_and_actor(reader, story):
    def listed(query):
        page = reader.get(f"/admin/instance/activity/?{query}").content.decode()
        return re.findall(r'class="badge s-\w+">.*?</svg>(\w+)</span>', page.partition('class="activity"')[2])

    assert listed("kind=attempt") == ["RESUBMITTED"]
    assert listed("kind=refusal") == ["REFUSED"]
    assert listed("kind=server&server=worker-lost")[-1] == "RUNNING"
    assert set(listed("who=liveness&kind=server")) == {"DISCONNECTED"}
    assert listed("server=nobody") == listed("kind=action") == []
    assert listed("before=2001-01-01T00:00:00Z") == listed("before=no&server=nobody") == []
    assert (
        listed("before=2001-01-01T00:00:00") == listed("before=2001-13-01T00:00:00Z&server=%00nobody&who=nobody") == []
    )


@pytest.mark.parametrize(
    ("chosen", "trigger"), [("1", "every 1s, refresh"), ("0", "refresh"), ("x", "every 3s, refresh")]
)
def test_the_poll_interval_is_kept(reader, chosen, trigger):
    back = "/admin/instance/jobs/?state=FAILED"
    answer = reader.post("/admin/instance/poll/", {"every": chosen, "back": back})
    assert answer.url == back
    assert f'hx-trigger="{trigger}"' in reader.get("/admin/instance/").content.decode()


def test_the_poll_form_never_redirects_to_another_host(reader):
    assert reader.post("/admin/instance/poll/", {"every": "1", "back": "//evil.example/"}).url == "/admin/instance/"
    assert reader.get("/admin/instance/poll/").status_code == 405


def test_a_poll_gets_only_the_live_part(reader, worker):
    worker()
    answer = reader.get("/admin/instance/", headers=HTMX).content.decode()
    assert "verdict" in answer
    assert "<html" not in answer


def test_an_unknown_id_is_a_404_with_an_explanation(reader):
    for kind in ("servers", "jobs"):
        answer = reader.get(f"/admin/instance/{kind}/{uuid.uuid4()}/")
        assert answer.status_code == 404
        assert b"has this id" in answer.content


def test_the_pages_need_staff_status_and_a_view_permission(client, db):
    assert client.get("/admin/instance/").status_code == 302
    client.force_login(User.objects.create_user("staff", is_staff=True))
    assert client.get("/admin/instance/").status_code == 403
    client.force_login(User.objects.create_user("visitor"))
    assert client.get("/admin/instance/").status_code == 302
    client.force_login(User.objects.create_superuser("root"))
    assert client.get("/admin/instance/").status_code == 200
    assert b'href="/admin/instance/"' in client.get("/admin/").content


def test_the_admin_shows_the_tables_and_changes_nothing(admin_client, story, api):
    from liveness.models import ApiToken, Server

    token, server = ApiToken.objects.first(), Server.objects.first()
    for table in ("liveness/server", "liveness/serverevent", "liveness/apitoken", "jobs/workerjob", "jobs/attempt"):
        assert admin_client.get(f"/admin/{table}/?q=worker").status_code == 200
        assert admin_client.get(f"/admin/{table}/add/").status_code == 403
    for table, row in (("server", server), ("apitoken", token)):
        page = f"/admin/liveness/{table}/{row.pk}/change/"
        answer = admin_client.get(page)
        assert answer.status_code == 200
        assert b'name="_save"' not in answer.content
        assert b"igest" not in answer.content
        assert admin_client.post(page, {"state": "RUNNING", "name": "x"}).status_code == 403
        assert admin_client.post(f"/admin/liveness/{table}/{row.pk}/delete/", {"post": "yes"}).status_code == 403


def test_every_state_has_its_colour_and_its_shape():
    root = Path(__file__).resolve().parents[3]
    css = (root / "controlplane/console/static/controlplane/instance.css").read_text()
    icons = (root / "templates/admin/instance/_icons.html").read_text()
    for state in {*ServerState, *JobState, *AttemptState}:
        assert re.search(rf"\.s-{state}\b", css), state
        assert f'id="i-{state}"' in icons, state


def test_no_colour_is_written_down_twice():
    sheets = (Path(__file__).resolve().parents[3] / "controlplane/console/static/controlplane").glob("*.css")
    colours = Counter(colour for css in sheets for colour in re.findall(r"light-dark\([^)]*\)", css.read_text()))
    assert colours and set(colours.values()) == {1}
