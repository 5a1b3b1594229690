"""*Change…* on a worker: concurrency and tags, until its agent ends."""

import pytest

from liveness.models import ApiToken, Server, ServerEvent
from tests.support.forms import fields_of
from tests.support.operators import actions

pytestmark = pytest.mark.django_db
PAGES = "/admin/instance/servers/"
OWN = ["runtime:shell", "script"]


@pytest.fixture
def browser(staff):
    return staff("configure_server", checks_csrf=False)


def open_form(browser, server):
    page = browser.get(f"{PAGES}{server.id}/change/").content.decode()
    return fields_of(page.replace('class="confirm"', 'class="confirm is-form"'))


def change(browser, server, **fields):
    return browser.post(f"{PAGES}{server.id}/change/", {**open_form(browser, server), **fields})


def test_a_change_reaches_the_worker_with_its_next_heartbeat(browser, worker, api):
    server = worker(tags=[*OWN, "gpu"], given_tags=["gpu"], max_concurrent=2)
    assert server.beat().json()["config"] == {"max_concurrent": 2, "tags": ["gpu", *OWN]}
    assert "Change…" in browser.get(f"{PAGES}{server.id}/").content.decode()
    form = open_form(browser, server)
    assert (form["concurrency"], form["tags"]) == ("2", "gpu")
    assert change(browser, server, concurrency="5", tags="cpu, big", note="more room").status_code == 302
    config = {"max_concurrent": 5, "tags": ["big", "cpu", *OWN]}
    assert server.beat().json()["config"] == config
    assert server.beat(running=[]).json()["config"] == config
    shown = api("viewer").get(f"/servers/{server.id}").json()
    assert {"max_concurrent": shown["max_concurrent"], "tags": shown["tags"]} == config
    [event] = ServerEvent.objects.filter(action="configure_server")
    assert (event.actor, event.reason) == ("operator:ann", "more room")
    assert event.changes == {
        "max_concurrent": {"old": 2, "new": 5},
        "tags": {"old": ["gpu", *OWN], "new": ["big", "cpu", *OWN]},
    }


def test_the_changed_tags_and_slots_decide_about_claims(browser, worker, submit):
    server = worker(tags=[*OWN, "gpu"], given_tags=["gpu"])
    submit(tags=["cpu"], unmatched="wait")
    submit(tags=["cpu"], unmatched="wait")
    assert server.claim(limit=5) == []
    change(browser, server, concurrency="2", tags="cpu")
    assert len(server.claim(limit=5)) == 2


def test_the_tags_of_the_agent_itself_stay(browser, worker):
    server = worker(tags=[*OWN, "gpu"], given_tags=["gpu"])
    change(browser, server, tags="script")
    row = Server.objects.get(pk=server.id)
    assert (row.tags, row.given_tags) == (OWN, [])


def test_all_tags_of_an_agent_that_names_none_may_change(browser, worker):
    server = worker(tags=[*OWN, "gpu"])
    change(browser, server, tags="script")
    assert server.beat().json()["config"]["tags"] == ["script"]


def test_a_form_that_is_older_than_the_last_change_is_refused(browser, worker):
    server = worker(max_concurrent=2)
    form = open_form(browser, server)
    change(browser, server, concurrency="3")
    late = browser.post(f"{PAGES}{server.id}/change/", {**form, "concurrency": "9"})
    assert late.status_code == 409 and Server.objects.get(pk=server.id).max_concurrent == 3


def test_the_token_of_the_worker_bounds_its_tags(browser, worker):
    server = worker(tags=["gpu"])
    ApiToken.objects.filter(role="worker").update(tags=["gpu", "cpu"])
    refused = change(browser, server, tags="cpu, secret-room")
    assert refused.status_code == 409 and "not secret-room" in refused.content.decode()


@pytest.mark.parametrize("wrong", [{"concurrency": "0"}, {"concurrency": ""}, {"tags": "x" * 300}])
def test_an_invalid_form_changes_no_worker(browser, worker, wrong):
    server = worker(max_concurrent=2, tags=["gpu"])
    assert change(browser, server, **wrong).status_code == 200
    assert Server.objects.get(pk=server.id).max_concurrent == 2 and actions() == []


def test_values_that_are_the_same_write_no_event(browser, worker):
    assert change(browser, worker(max_concurrent=2)).status_code == 302
    assert actions() == []


def test_servers_that_claim_no_jobs_cannot_be_changed(browser, worker, celery_worker):
    for server in (worker(type="EXECUTOR"), celery_worker()):
        assert "Change…" not in browser.get(f"{PAGES}{server.id}/").content.decode()
        answer = browser.post(f"{PAGES}{server.id}/change/", {"concurrency": "2", "tags": ""})
        assert answer.status_code == 409 and "claims no jobs" in answer.content.decode()


def test_a_reader_may_not_change_a_worker(reader, worker):
    server = worker()
    assert "Change…" not in reader.get(f"{PAGES}{server.id}/").content.decode()
    assert reader.get(f"{PAGES}{server.id}/change/").status_code == 403
