"""Each page is for those who may view what it shows, and tells nobody of what he may not view."""

import re
from html import unescape

import pytest

from controlplane.console.views.page import TABS
from jobs.api.sessions import operator_permissions
from jobs.permissions import VIEWS
from jobs.services.liveness_check import check_liveness
from jobs.states import AttemptState
from tests.support.executions import step
from tests.support.people import employ, permissions

HOME = "/admin/instance/"
FOLDERS = {"server": "servers", "job": "jobs", "execution": "executions", "trigger": "triggers"}


def script(command):
    return {"type": "script", "command": command}


@pytest.fixture
def secrets(worker, api, submit, clock):
    """Words that only who may view a thing may read, of each thing that the pages show."""
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
    """All Instance pages to which links lead, with what is answered there; of lists that are filtered the whole one."""
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
            if link.startswith(HOME) and link not in (*pages, *ahead, HOME + "poll/"):
                ahead.append(link)
    return pages


@pytest.mark.parametrize("what", VIEWS)
def test_who_may_view_one_thing_and_take_every_action_reads_of_that_thing_alone(client, secrets, what):
    client.force_login(employ(VIEWS[what], *operator_permissions()))
    pages = crawled(client, HOME)
    assert {address: status for address, (status, _) in pages.items() if status not in (200, 302)} == {}
    read = {word for _, content in pages.values() for word in secrets.findall(content)}
    assert {word for word in read if not word.endswith(what)} == set()
    assert read, "nothing of it is there: the words are not the pages'"


def test_who_may_view_everything_reads_of_everything(client, secrets):
    client.force_login(employ(*VIEWS.values(), *operator_permissions()))
    pages = crawled(client, HOME)
    read = {word for _, content in pages.values() for word in secrets.findall(content)}
    assert read >= {
        "host-of-server", "tag-of-server", "metric of server", "note-of-server", "version-of-server",
        "command-of-job", "payload-of-job", "output-of-job", "error-of-job", "line-of-job", "tag-of-job", "key-of-job",
        "name-of-execution", "note-of-execution", "name-of-trigger", "command-of-trigger", "template-of-trigger",
    }  # fmt: skip


@pytest.mark.parametrize("what", VIEWS)
def test_tabs_are_of_what_the_reader_may_view_and_the_others_are_refused(client, db, what):
    client.force_login(employ(VIEWS[what]))
    home = client.get(HOME).content.decode()
    tabs = re.search(r'<nav class="tabs".*?</nav>', home, re.DOTALL)[0]
    for tab, of in TABS.items():
        at = HOME if tab == "overview" else f"{HOME}{tab}/"
        assert (f'href="{at}"' in tabs) == (of in (None, what)), tab
        assert client.get(at).status_code == (200 if of in (None, what) else 403), tab
    assert b'href="/admin/instance/"' in client.get("/admin/").content


def test_who_may_view_nothing_of_it_is_not_led_there(client, db):
    client.force_login(employ("auth.view_user"))
    assert b"/admin/instance/" not in client.get("/admin/").content
    for tab in TABS:
        assert client.get(HOME if tab == "overview" else f"{HOME}{tab}/").status_code == 403


@pytest.mark.parametrize("what", ["job", "execution", "server"])
def test_an_action_needs_its_permission_and_that_to_view_what_it_is_done_to(client, db, what):
    action = {"server": "cordon", "job": "fail", "execution": "rerun"}[what]
    label = {"server": "liveness.cordon_server", "job": "jobs.fail_workerjob", "execution": "jobs.rerun_execution"}[
        what
    ]
    user = employ(label)
    client.force_login(user)
    at = f"{HOME}{FOLDERS[what]}/{action}/?all=1"
    assert client.get(at).status_code == 403
    user.user_permissions.set(permissions(set(VIEWS.values()) - {VIEWS[what]} | {label}))
    assert client.post(at, {"note": "n"}).status_code == 403
    user.user_permissions.set(permissions([VIEWS[what]]))
    assert client.get(at).status_code == 403
    user.user_permissions.set(permissions([VIEWS[what], label]))
    assert client.get(at).status_code == 200


@pytest.mark.parametrize("what", VIEWS)
def test_the_activity_that_is_filtered_tells_no_more_than_the_whole(client, secrets, what):
    client.force_login(employ(VIEWS[what]))
    for kind in ("server", "attempt", "refusal", "action"):
        for more in ("", "&server=one", "&who=operator"):
            html = client.get(f"{HOME}activity/?kind={kind}{more}", headers={"HX-Request": "true"}).content.decode()
            assert {word for word in secrets.findall(html) if not word.endswith(what)} == set()
            if kind in ("attempt", "refusal") and what != "job":
                assert AttemptState.RESUBMITTED not in html
                assert "superseded" not in html
