"""Test that each page needs the permission for its content, and reveals nothing without it."""

import re
from html import unescape

import pytest

from controlplane.console.sidebar import ENTRIES
from jobs.api.sessions import operator_permissions
from jobs.permissions import VIEWS
from jobs.services.liveness_check import check_liveness
from jobs.states import AttemptState
from tests.support.executions import step
from tests.support.people import SEES_ALL, employ, permissions

HOME = "/admin/instance/"
FORMS = [f"{HOME}{form}/" for form in ("poll", "views/save", "first-steps/hide")]
"""Addresses that only take forms."""
PAGES = [entry for entry in ENTRIES if not entry.is_outside]
FOLDERS = {"server": "servers", "job": "jobs", "execution": "executions", "trigger": "triggers"}


def script(command):
    return {"type": "script", "command": command}


@pytest.fixture
def secrets(worker, api, submit, clock):
    """Return texts of each kind of object that only users with its permission may read."""
    operator = api("operator")
    lost = worker(name="one", hostname="host-of-server", version="version-of-server", tags=["script", "tag-of-server"])
    heir = worker(name="two", hostname="host-of-server")
    lost.beat(metrics={"metric_of_server": 1})
    submit(action=script("command-of-job"), payload={"is": "payload-of-job"}, tags=["tag-of-job"], key="key-of-job")
    for answer in (
        operator.post(f"/servers/{lost.id}/cordon", {"note": "note-of-server"}),
        operator.post(f"/servers/{lost.id}/uncordon", {"note": "note-of-server"}),
        operator.post(
            "/executions",
            {
                "name": "name-of-execution",
                "inputs": {"is": "part of the payload of each step"},
                "steps": [step("a", action=script("command-of-job"))],
            },
        ),
        operator.post(
            "/triggers",
            {
                "name": "name-of-trigger",
                "interval_seconds": 3600,
                "action": script("command-of-trigger"),
                "execution": {"name": "template-of-trigger", "steps": [step("a")]},
            },
        ),
    ):
        assert answer.status_code in (200, 201), answer.json()
    attempt = submit(action=script("command-of-job"), max_retries=0) and lost.hold()
    for seconds in (46, 301):
        clock.advance(seconds)
        heir.beat()
        check_liveness()
    lost.complete(attempt)
    done, *failed = heir.claim()
    heir.start(done)
    heir.report({"attempt": done["id"], "event": "LOG", "stream": "STDOUT", "sequence": 0, "lines": ["line-of-job"]})
    heir.complete(done, {"is": "output-of-job"})
    for held in failed:
        heir.start(held)
        heir.report({"attempt": held["id"], "event": "FAILED", "error": {"code": "BAD", "message": "error-of-job"}})
    submit(action=script("command-of-job"))
    heir.hold()
    for kind, action in (("job", "cancel"), ("execution", "rerun")):
        pk = operator.get(f"/{kind}s").json()["items"][0]["id"]
        assert operator.post(f"/{kind}s/{pk}/{action}", {"note": f"note-of-{kind}"}).status_code in (200, 201)
    return re.compile(r"[a-z]+[-_ ]of[-_ ](?:server|job|execution|trigger)\b")


def crawled(client, *starts):
    """Return all Instance pages that links lead to, with their status and content. Filtered lists count once."""
    pages, ahead = {}, list(starts)
    while ahead:
        address = ahead.pop()
        answer = client.get(address)
        content = b"".join(answer) if answer.streaming else answer.content
        pages[address] = answer.status_code, unescape(content.decode())
        links = re.findall(r'(?:href|formaction|action)="([^"]*)"', pages[address][1])
        for link in links if answer["Content-Type"].startswith("text/html") else []:
            path, _, query = link.partition("?")
            link = link if re.fullmatch("pick=.*|all=1|older_than=.*", query) else path
            if link.startswith(HOME) and link not in (*pages, *ahead, *FORMS):
                ahead.append(link)
    return pages


@pytest.mark.parametrize("what", VIEWS)
def test_a_user_who_views_one_thing_and_takes_every_action_reads_of_that_thing_alone(client, secrets, what):
    client.force_login(employ(VIEWS[what], *operator_permissions()))
    pages = crawled(client, HOME)
    assert {address: status for address, (status, _) in pages.items() if status not in (200, 302)} == {}
    read = {word for _, content in pages.values() for word in secrets.findall(content)}
    assert {word for word in read if not word.endswith(what)} == set()
    assert read, "nothing of it is there: the words are not the pages'"


def test_a_user_with_all_view_permissions_reads_of_everything(client, secrets):
    client.force_login(employ(*VIEWS.values(), *operator_permissions()))
    pages = crawled(client, HOME)
    read = {word for _, content in pages.values() for word in secrets.findall(content)}
    assert read >= {
        "host-of-server", "tag-of-server", "metric of server", "note-of-server", "version-of-server",
        "command-of-job", "payload-of-job", "output-of-job", "error-of-job", "line-of-job", "tag-of-job", "key-of-job",
        "name-of-execution", "note-of-execution", "name-of-trigger", "command-of-trigger", "template-of-trigger",
    }  # fmt: skip


@pytest.mark.parametrize("what", VIEWS)
def test_the_sidebar_follows_the_view_permissions_and_other_pages_are_refused(client, db, what):
    client.force_login(employ(VIEWS[what]))
    home = client.get(HOME).content.decode()
    tabs = re.search(r'<nav class="menu".*?</nav>', home, re.DOTALL)[0]
    for entry in PAGES:
        is_open = entry.shows in (None, what) and not entry.permission
        assert (f'href="{entry.url}"' in tabs) == is_open, entry.name
        assert client.get(entry.url).status_code == (200 if is_open else 403), entry.name
    assert b'href="/admin/instance/"' in client.get("/admin/").content


def test_a_user_without_its_permission_gets_no_link_to_it(client, db):
    client.force_login(employ("auth.view_user"))
    assert b"/admin/instance/" not in client.get("/admin/").content
    for entry in PAGES:
        assert client.get(entry.url).status_code == 403


@pytest.mark.parametrize("what", ["job", "execution", "server"])
def test_an_action_needs_its_permission_and_the_view_permission(client, db, what):
    action = {"server": "cordon", "job": "fail", "execution": "rerun"}[what]
    label = {"server": "liveness.cordon_server", "job": "jobs.fail_workerjob", "execution": "jobs.rerun_execution"}[
        what
    ]
    user = employ(label)
    client.force_login(user)
    at = f"{HOME}{FOLDERS[what]}/{action}/?all=1"
    assert client.get(at).status_code == 403
    user.user_permissions.set(permissions(set(VIEWS.values()) - {VIEWS[what]} | {label, SEES_ALL}))
    assert client.post(at, {"note": "n"}).status_code == 403
    user.user_permissions.set(permissions([VIEWS[what], SEES_ALL]))
    assert client.get(at).status_code == 403
    user.user_permissions.set(permissions([VIEWS[what], label, SEES_ALL]))
    assert client.get(at).status_code == 200


@pytest.mark.parametrize("what", VIEWS)
def test_the_filtered_activity_reveals_no_more_than_the_whole(client, secrets, what):
    client.force_login(employ(VIEWS[what]))
    for kind in ("server", "attempt", "refusal", "action"):
        for more in ("", "&server=one", "&who=operator"):
            html = client.get(f"{HOME}activity/?kind={kind}{more}", headers={"HX-Request": "true"}).content.decode()
            assert {word for word in secrets.findall(html) if not word.endswith(what)} == set()
            if kind in ("attempt", "refusal") and what != "job":
                assert AttemptState.RESUBMITTED not in html
                assert "superseded" not in html
