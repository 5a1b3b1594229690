"""Operator actions from the Instance pages: preview, note and action, or a 409 if something has changed."""

import re

import pytest
from django.contrib.admin.models import LogEntry

from controlplane.console.actions import bulk_actions
from jobs.models import WorkerJob
from jobs.services import batches
from jobs.services.liveness_check import check_liveness
from liveness.models import Server, ServerEvent

PAGES = "/admin/instance/"
SERVER_ACTIONS = {
    "cordon": "cordon",
    "uncordon": "cordon",
    "drain": "drain",
    "undrain": "drain",
    "disconnect": "disconnect",
}
JOB_ACTIONS = ("cancel", "resubmit", "fail")


def look(client, address):
    """Return the preview of an action and the data of its form."""
    answer = client.get(PAGES + address)
    assert answer.status_code == 200
    page = answer.content.decode()
    form = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.partition("<main")[2]):
        form.setdefault(name, []).append(value)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page)), form


def act(client, address, note="a reason", **more):
    _, form = look(client, address)
    return client.post(PAGES + address, {**form, "note": note, **more})


def words(answer):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", answer.content.decode()))


def test_a_preview_changes_nothing(staff, worker, submit):
    one, job = worker(), submit()
    client = staff("cordon_server", "drain_server", "disconnect_server", *(f"{name}_workerjob" for name in JOB_ACTIONS))
    before = ServerEvent.objects.count()
    for name in SERVER_ACTIONS:
        look(client, f"servers/{name}/?pick={one.id}")
        look(client, f"servers/{name}/?all=1")
    for name in JOB_ACTIONS:
        look(client, f"jobs/{name}/?pick={job['id']}")
        look(client, f"jobs/{name}/?all=1&state=PENDING")
    assert (ServerEvent.objects.count(), LogEntry.objects.count()) == (before, 0)


@pytest.mark.parametrize(("name", "state"), [("cancel", "CANCELLED"), ("fail", "FAILED")])
def test_ending_a_job_stores_a_note_an_event_and_a_log_entry(staff, submit, name, state):
    job = submit()
    client = staff(f"{name}_workerjob")
    assert act(client, f"jobs/{name}/?pick={job['id']}", "it is wrong").status_code == 302
    assert WorkerJob.objects.get().state == state
    event = ServerEvent.objects.get(action=f"{name}_job")
    assert (event.actor, event.reason, event.server_id) == ("operator:ann", "it is wrong", None)
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user.username) == (job["id"], "ann")
    page = client.get(PAGES + "activity/?kind=action").content.decode()
    assert "it is wrong" in page and f'href="{PAGES}jobs/{job["id"]}/"' in page


def test_the_page_of_a_job_shows_manual_actions_with_time_and_note(staff, api, worker, submit):
    job, other = submit(), submit()
    worker().hold(), api("operator").post(f"/jobs/{job['id']}/resubmit", {"note": "a slow disk"})
    client = staff("cancel_workerjob")
    act(client, f"jobs/cancel/?pick={job['id']}", "not <b>needed</b>")
    page = words(client.get(f"{PAGES}jobs/{job['id']}/"))
    events = page.partition("Manual actions")[2]
    moments = [
        events.find(word)
        for word in ("Cancel job", "&lt;b&gt;needed", "Resubmit job", "by operator:a operator", "a slow")
    ]
    assert moments == sorted(moments) and moments[0] > 0, events
    assert "Manual actions" not in words(client.get(f"{PAGES}jobs/{other['id']}/"))


def test_a_running_job_is_resubmitted_and_its_page_offers_only_valid_actions(staff, worker, submit):
    job = submit()
    worker().hold()
    client = staff(*(f"{name}_workerjob" for name in JOB_ACTIONS))
    page = client.get(f"{PAGES}jobs/{job['id']}/").content.decode()
    assert all(f"jobs/{name}/?pick=" in page for name in JOB_ACTIONS)
    act(client, f"jobs/resubmit/?pick={job['id']}")
    assert WorkerJob.objects.get().state == "PENDING"
    page = client.get(f"{PAGES}jobs/{job['id']}/").content.decode()
    assert [name for name in JOB_ACTIONS if f"jobs/{name}/?pick=" in page] == ["cancel", "fail"]


def test_resubmitting_an_ended_job_redirects_to_the_new_job(staff, submit):
    job = submit()
    client = staff("cancel_workerjob", "resubmit_workerjob")
    act(client, f"jobs/cancel/?pick={job['id']}")
    answer = act(client, f"jobs/resubmit/?pick={job['id']}")
    new = WorkerJob.objects.get(resubmission_of=job["id"])
    assert answer.url == f"{PAGES}jobs/{new.pk}/"


def test_a_form_sent_twice_resubmits_an_ended_job_once(staff, submit):
    job = submit()
    client = staff("cancel_workerjob", "resubmit_workerjob")
    act(client, f"jobs/cancel/?pick={job['id']}")
    _, form = look(client, address := f"jobs/resubmit/?pick={job['id']}")
    answers = [client.post(PAGES + address, {**form, "note": "twice"}) for _ in range(2)]
    new = WorkerJob.objects.get(resubmission_of=job["id"])
    assert [answer.url for answer in answers] == [f"{PAGES}jobs/{new.pk}/"] * 2
    again = f"jobs/resubmit_again/?pick={job['id']}"
    assert act(client, again).url != answers[0].url  # a second, explicit request


def test_a_filter_form_sent_twice_resubmits_each_ended_job_once(staff, submit):
    jobs = [submit()["id"] for _ in range(3)]
    client = staff("cancel_workerjob", "resubmit_workerjob")
    act(client, "jobs/cancel/?all=1")
    _, form = look(client, "jobs/resubmit/?all=1&state=CANCELLED")
    for _ in range(2):
        assert client.post(f"{PAGES}jobs/resubmit/?all=1&state=CANCELLED", {**form, "note": "x"}).status_code == 302
    copies = WorkerJob.objects.exclude(resubmission_of=None).values_list("resubmission_of", flat=True)
    assert sorted(map(str, copies)) == sorted(jobs)


def test_a_form_sent_twice_takes_a_running_job_from_its_worker_once(staff, worker, submit):
    job, one = submit(), worker()
    one.hold()
    client = staff("resubmit_workerjob")
    _, form = look(client, address := f"jobs/resubmit/?pick={job['id']}")
    assert client.post(PAGES + address, {**form, "note": "twice"}).status_code == 302
    one.obey()
    worker(name="other").hold()
    again = client.post(PAGES + address, {**form, "note": "twice"})
    assert again.status_code == 409
    assert "Another attempt has started since you looked" in words(again)
    assert WorkerJob.objects.get().state == "RUNNING"


def test_a_blocked_step_is_cancelled_and_its_execution_continues(staff, submit):
    action = {"type": "script", "command": "true"}
    steps = [{"key": "a", "action": action}, {"key": "b", "action": action, "depends_on": ["a"]}]
    made = submit.client.post("/executions", {"name": "two", "steps": steps})
    assert made.status_code == 201, made.json()
    step = WorkerJob.objects.get(state="BLOCKED")
    client = staff("cancel_workerjob", "fail_workerjob")
    page = client.get(f"{PAGES}jobs/{step.pk}/").content.decode()
    assert "jobs/cancel/?pick=" in page and "jobs/fail/?pick=" not in page
    act(client, f"jobs/cancel/?pick={step.pk}")
    step.refresh_from_db()
    assert step.state == "CANCELLED"
    assert LogEntry.objects.get().object_id == str(step.pk)


@pytest.mark.parametrize("name", SERVER_ACTIONS)
def test_a_server_changed_since_the_preview_is_a_409_and_stays_unchanged(staff, operator_steps, worker, name):
    one = worker()
    client = staff(f"{SERVER_ACTIONS[name]}_server")
    operator_steps(name, one)
    address = f"servers/{name}/?pick={one.id}"
    _, form = look(client, address)
    one.beat(state="TERMINATING")
    before = ServerEvent.objects.count()
    answer = client.post(PAGES + address, {**form, "note": "x"})
    assert answer.status_code == 409
    assert "It was RUNNING when you looked and is TERMINATING now" in words(answer)
    assert (ServerEvent.objects.count(), LogEntry.objects.count()) == (before, 0)


@pytest.fixture
def operator_steps(api):
    """Return the calls that make an action applicable to a server."""
    operator = api("operator")

    def steps(name, server):
        if name in ("uncordon", "undrain"):
            step = name.removeprefix("un")
            assert operator.post(f"/servers/{server.id}/{step}", {"note": "x"}).status_code == 200

    return steps


def test_a_job_changed_since_the_preview_is_a_409(staff, worker, submit):
    job, one = submit(), worker()
    client = staff("cancel_workerjob")
    address = f"jobs/cancel/?pick={job['id']}"
    _, form = look(client, address)
    one.hold()
    answer = client.post(PAGES + address, {**form, "note": "x"})
    assert answer.status_code == 409
    assert "It was PENDING when you looked and is RUNNING now" in words(answer)
    assert WorkerJob.objects.get().cancel_requested_at is None


def test_the_preview_of_a_disconnect_shows_the_jobs_that_would_move(staff, worker, submit):
    submit(), submit()
    one = worker(name="one")
    one.hold(), one.hold(running=False)
    page, _ = look(staff("disconnect_server"), f"servers/disconnect/?pick={one.id}")
    assert "then waits 5 min for its grace period" in page
    assert "moves at once, because its code has not started" in page


@pytest.mark.parametrize("held", [(), ("cordon_server",), ("cancel_workerjob",)])
def test_buttons_and_actions_need_permissions(staff, worker, submit, held):
    one, job = worker(), submit()
    client = staff(*held)
    paths = [(f"servers/{name}/", f"{holds}_server", one.id) for name, holds in SERVER_ACTIONS.items()]
    paths += [(f"jobs/{name}/", f"{name}_workerjob", job["id"]) for name in JOB_ACTIONS]
    paths += [("quarantine/dismiss/", "dismiss_workerjob", job["id"])]
    pages = "".join(
        client.get(PAGES + page).content.decode()
        for page in ("servers/", f"servers/{one.id}/", "jobs/", f"jobs/{job['id']}/", "quarantine/")
    )
    csrf = {"csrfmiddlewaretoken": re.search(r'csrfmiddlewaretoken" value="([^"]+)"', pages)[1]}
    for path, permission, pk in paths:
        if permission in held:
            continue
        assert PAGES + path not in pages
        for chosen in (f"?pick={pk}", "?all=1"):
            assert client.get(PAGES + path + chosen).status_code == 403
            assert client.post(PAGES + path + chosen, {"note": "x", **csrf}).status_code == 403
    assert ("Cordon…" in pages) == ("cordon_server" in held)
    assert not LogEntry.objects.exists()


def test_servers_that_ended_are_offered_no_action(staff, worker, clock):
    worker(name="here")
    worker(name="gone").beat(state="TERMINATED_GRACEFULLY")
    for _ in range(2):
        clock.advance(10)
        check_liveness()
    client = staff("cordon_server", "drain_server", "disconnect_server")
    for query, offered, name in (("", True, "here"), ("?state=ended", False, "gone")):
        page = client.get(f"{PAGES}servers/{query}").content.decode()
        assert f">{name}</a>" in page
        assert ('class="bulk"' in page and 'name="pick"' in page) is offered


def test_a_post_without_the_csrf_token_is_refused(staff, worker):
    one = worker()
    address = f"servers/cordon/?pick={one.id}"
    client = staff("cordon_server")
    _, form = look(client, address)
    del form["csrfmiddlewaretoken"]
    assert client.post(PAGES + address, {**form, "note": "x"}).status_code == 403
    assert Server.objects.get().cordoned_by is None


def test_the_request_processes_the_first_items_of_a_batch_and_executors_the_rest(staff, submit, monkeypatch):
    monkeypatch.setattr(bulk_actions, "BATCH", 2)
    for _ in range(3):
        submit(tags=["gpu"], unmatched="wait")
    other = submit()
    client = staff("cancel_workerjob")
    address = "jobs/cancel/?tag=gpu&all=1"
    page, form = look(client, address)
    assert "3 jobs (tag gpu)" in page and "It applies to 3." in page
    submit(tags=["gpu"], unmatched="wait")  # created after the preview
    began = client.post(PAGES + address, {**form, "note": "too many"})
    half = client.get(began.url)
    assert "2 of 3 done, 1 remaining" in words(half) and "too many" in words(half)
    assert WorkerJob.objects.filter(state="CANCELLED").count() == 2
    batches.run_batches()
    whole = client.get(began.url)
    assert "3 of 3 done" in words(whole) and f'href="{PAGES}jobs/?tag=gpu"' in whole.content.decode()
    assert WorkerJob.objects.filter(state="CANCELLED").count() == 3
    assert WorkerJob.objects.get(pk=other["id"]).state == "PENDING"
    assert LogEntry.objects.count() == ServerEvent.objects.filter(action="cancel_job").count() == 3


def test_a_filter_that_matches_more_than_in_the_preview_is_a_409(staff, worker, submit):
    submit(), submit()
    one = worker()
    one.hold()
    client = staff("cancel_workerjob")
    address = "jobs/cancel/?state=RUNNING&all=1"
    _, form = look(client, address)
    form["until"] = ["ffffffff-ffff-ffff-ffff-ffffffffffff"]
    one.hold()
    answer = client.post(PAGES + address, {**form, "note": "x"})
    assert answer.status_code == 409 and "The preview showed 1, but now 2 match" in words(answer)
    assert not WorkerJob.objects.exclude(cancel_requested_at=None).exists()


def test_all_servers_that_match_are_cordoned(staff, worker):
    worker(name="a", cluster="east"), worker(name="b", cluster="east"), worker(name="c", cluster="west")
    client = staff("cordon_server")
    page, _ = look(client, "servers/cordon/?cluster=east&all=1")
    assert "2 servers (cluster east)" in page
    act(client, "servers/cordon/?cluster=east&all=1")
    assert set(Server.objects.exclude(cordoned_by=None).values_list("name", flat=True)) == {"a", "b"}


@pytest.mark.parametrize("query", ["", "?pick=no", "?" + "&".join(["pick=01a1fe1d-b4bb-7a60-b0a7-7ec59c176bca"] * 401)])
def test_selecting_nothing_or_too_much_is_an_error(staff, query):
    client = staff("cordon_server")
    answer = client.get(PAGES + "servers/cordon/" + query, follow=True)
    assert "Select at least one server, and at most 400." in words(answer)


@pytest.mark.parametrize(("name", "left"), [("resubmit", 2), ("dismiss", 1)])
def test_every_action_on_a_quarantined_job_ends_its_quarantine(staff, worker, submit, name, left):
    job = submit(on_worker_lost="FAIL", key="mine")
    one = worker()
    one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": {"code": "WORKER_CRASHED", "message": "x"}})
    assert WorkerJob.objects.get().state == "FAILED"
    client = staff(f"{name}_workerjob")
    assert f'href="{PAGES}jobs/{job["id"]}/"' in client.get(PAGES + "quarantine/").content.decode()
    act(client, f"quarantine/{name}/?pick={job['id']}")
    assert "No job is in quarantine" in words(client.get(PAGES + "quarantine/"))
    assert WorkerJob.objects.count() == left
    assert WorkerJob.objects.get(pk=job["id"]).dismissed_at is not None
    assert ServerEvent.objects.get(action=f"{name}_job").reason == "a reason"
    again = client.get(f"{PAGES}quarantine/{name}/?pick={job['id']}")
    assert "It applies to" not in words(again)


@pytest.mark.parametrize(
    ("name", "running", "state"), [("requeue-stale-claimed", False, "PENDING"), ("fail-stale-running", True, "FAILED")]
)
def test_manual_recovery_has_a_preview_and_a_count(staff, worker, submit, clock, name, running, state):
    submit(name="nightly rollup")
    one = worker()
    one.hold(running=running)
    clock.advance(20)
    client = staff("recover_workerjob")
    assert "No attempt is stale" in words(client.get(PAGES + "recovery/"))
    page = words(client.get(PAGES + "recovery/?claimed=10&running=10"))
    assert "1 silent for more than 10 s" in page and "nightly rollup attempt 1" in page
    address = f"recovery/{name}/?older_than=10"
    html, form = look(client, address)
    assert "It applies to 1." in html
    assert client.post(PAGES + address, {**form, "seen": "0", "note": "x"}).status_code == 409
    assert client.post(PAGES + address, {**form, "note": "stuck"}).status_code == 302
    assert WorkerJob.objects.get().state == state
    assert "stuck" in ServerEvent.objects.get(action=name.replace("-", "_")).reason
    assert LogEntry.objects.get().change_message.endswith("stuck")


def test_manual_recovery_needs_its_permission(staff):
    client = staff()
    assert client.get(PAGES + "recovery/").status_code == 200
    for name in ("requeue-stale-claimed", "fail-stale-running"):
        assert client.get(f"{PAGES}recovery/{name}/?older_than=10").status_code == 403


@pytest.mark.parametrize("query", ["claimed=-1", "running=x", "claimed=nan", "running=1e30"])
def test_invalid_thresholds_are_an_error(staff, query):
    answer = staff("recover_workerjob").get(PAGES + "recovery/?" + query)
    assert answer.status_code == 200 and "errorlist" in answer.content.decode()
