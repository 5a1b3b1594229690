"""Every address, with every method, for every kind of credential: who is let in stands in `access.txt`."""

import re
import uuid
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection, transaction
from django.test import Client
from django.urls import get_resolver

from jobs.api.sessions import operator_permissions
from jobs.models import WorkerJob
from jobs.permissions import VIEWS
from liveness.models import API_PREFIX, Role
from tests.support.executions import SCRIPT, step
from tests.support.people import employ

pytestmark = pytest.mark.django_db

METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE", "PURGE")
ROLES = set(Role)


class Line(NamedTuple):
    address: str
    methods: frozenset[str]
    who: str

    @property
    def is_of_django(self):
        return self.methods == {"any"}

    @property
    def tried(self):
        if self.is_of_django:
            return {"GET", "POST"} - {method for line in LINES if line[0] == self[0] for method in line.methods}
        return self.methods | ({"HEAD"} if "GET" in self.methods else set())

    @property
    def group(self):
        words = self.address.split("/")
        return (
            "/".join(words[:2]) if words[1:] and words[1] in ("v1", "instance", "liveness", "jobs", "auth") else "rest"
        )


def lines():
    table = Path(__file__).with_name("access.txt").read_text()
    for line in table.splitlines():
        if line and not line.startswith("#"):
            address, methods, who = re.fullmatch(r"(\S+) +((?:[A-Z]+ )+|any ) *(.+)", line).groups()
            yield Line(address, frozenset(methods.split()), who)


LINES = list(lines())
GROUPS = {group: list(some) for group, some in groupby(sorted(LINES), lambda line: line.group)}


def addresses(patterns, before=""):
    """Every address that there is, with its view."""
    for pattern in patterns:
        address = before + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from addresses(pattern.url_patterns, address)
        else:
            yield address, pattern.callback


def test_the_table_names_every_address_and_each_method_of_the_api():
    there = dict(addresses(get_resolver().url_patterns))
    assert {line.address for line in LINES} == there.keys()
    for address, view in there.items():
        has = {name.upper() for name in ("get", "post", "put", "patch", "delete") if hasattr(view, "cls")}
        has = {method for method in has if hasattr(view.cls, method.lower())}
        named = [method for line in LINES if line.address == address for method in line.methods]
        assert not has or sorted(named) == sorted(has), address


class Things:
    """Objects of each kind, with their ids for URLs, and the credentials of all callers."""

    def __init__(self, api, worker, submit):
        self.client = Client(raise_request_exception=False)
        self.own, self.other = worker(), worker()
        operator = api("operator")
        self.job = submit()["id"]
        self.own.hold()
        body = {"name": "n", "steps": [step("a")]}
        self.execution = operator.post("/executions", body).json()["id"]
        body = {"name": "n", "interval_seconds": 60, "action": SCRIPT, "execution": body}
        self.trigger = operator.post("/triggers", body).json()["id"]
        period = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:05:00Z"}
        self.backfill = operator.post(f"/triggers/{self.trigger}/backfills", period).json()["id"]
        self.hold = operator.post("/holds", {"of": {"tag": "none"}}).json()["id"]
        operator.post(f"/servers/{self.other.id}/cordon", {"note": "n"})
        self.bearers = {role: submit.client.token if role == Role.CLIENT else api(role).token for role in Role}
        self.bearers |= {"itself": self.own.token, "another server": self.other.token}
        self.bearers |= {"a wrong token": API_PREFIX + "wrong", "a wrong server token": self.own.token + "x"}
        self.visitor = self.session(User.objects.create_user("visitor"))
        self.root = self.session(User.objects.create_superuser("root"))
        Group.objects.create(name="group")
        self.sessions = {}

    def session(self, user):
        self.client.cookies.clear()
        self.client.force_login(user)
        return self.client.cookies.pop("sessionid").value

    def staff(self, *names):
        """Return the session of staff with these permissions."""
        if names not in self.sessions:
            self.sessions[names] = self.session(employ(*names))
        return self.sessions[names]

    def staff_without(self, *names):
        """Return the session of staff with all permissions except these."""
        return self.staff(*sorted(self.all_permissions - set(names)))

    @cached_property
    def all_permissions(self):
        rows = Permission.objects.values_list("content_type__app_label", "codename")
        return {f"{app}.{name}" for app, name in rows}

    def path(self, address):
        """Return an address with ids of existing rows."""
        of = re.match(r"admin/(liveness|jobs|auth)/(\w+)/", address)
        row = of and apps.get_model(*of.groups())._default_manager.order_by("-pk").first()
        ids = {
            "<uuid:server>": self.own.id, "<uuid:job>": self.job, "<uuid:execution>": self.execution,
            "<uuid:trigger>": self.trigger, "<uuid:batch>": self.job, "<str:step>": "a",
            "<slug:name>": "fail-stale-running", "<path:pattern>": "customer:*", "<str:signal>": "go",
            "<uuid:hold>": self.hold, "<uuid:backfill>": self.backfill, "<uuid:token>": self.job,
            "<uuid:incident>": self.job, "<uuid:channel>": self.job,
            "<uuid:message>": self.job, "<uuid:notification>": self.job,
            "<path:object_id>": str(row.pk if row else self.job), "<id>": str(row and row.pk),
            "<path:content_type_id>": str(ContentType.objects.get_for_model(WorkerJob).pk),
            "^api/": "api/v2/jobs", "^(?P<app_label>liveness|jobs|auth)/$": "jobs/", "(?P<url>.*)$": "nothing/is/here",
        }  # fmt: skip
        for placeholder, value in ids.items():
            address = address.replace(placeholder, value)
        assert not re.search(r"[<^$(]", address), address
        return f"/{address}"

    def answer(self, method, path, bearer=None, session=None):
        """Return the response of a call, and undo its changes."""
        is_api = path.startswith("/api/")
        body = b"" if method in ("GET", "HEAD", "TRACE") or not is_api else b"{}"
        if path == "/api/v1/servers" and method == "POST":  # whose role is judged in the statement that registers
            body = b'{"type": "WORKER", "name": "n", "instance_id": "%s"}' % str(uuid.uuid4()).encode()
        self.client.cookies.clear()
        if session:
            self.client.cookies["sessionid"] = session
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        content_type = "application/json" if is_api else "application/x-www-form-urlencoded"
        with transaction.atomic():
            answer = self.client.generic(method, path, body, content_type, headers=headers)
            b"".join(answer) if answer.streaming else answer.content
            assert not connection.needs_rollback or answer.status_code < 500, (method, path, answer)
            transaction.set_rollback(True)
        is_probe = path.startswith("/healthz") and answer.status_code == 503  # no check has run
        assert answer.status_code < 500 or is_probe, (method, path, answer.status_code)
        return answer


def is_let_in(answer):
    """Return True if the caller was let in, whatever the call then returned."""
    to_sign_in = answer.status_code == 302 and re.match(r"/admin/(login/.*)?$", answer["Location"])
    return not (to_sign_in or answer.status_code in (401, 403, 405))


def credentials(line, things):
    """Yield each kind of credential, and True if the line lets it in."""
    who, is_for_all = line.who, line.who == "everybody"
    yield "nobody", {}, is_for_all
    yield "a visitor", {"session": things.visitor}, is_for_all
    if is_for_all:
        return
    roles = set(who.split()) & {*ROLES, "itself"}
    for name, token in things.bearers.items():
        if roles or name in ("operator", "itself"):
            yield name, {"bearer": token}, name in roles
    yield "root", {"session": things.root}, who != "nobody" and (not roles or bool(roles & {"operator"}))
    if roles:
        yield "staff", {"session": things.staff()}, False
        yield "staff who views", {"session": things.staff(*VIEWS.values())}, "viewer" in roles
        both = {"session": things.staff(*VIEWS.values(), *sorted(operator_permissions()))}
        yield "staff who acts", both, "operator" in roles
        return
    yield "staff", {"session": things.staff()}, who == "staff"
    if "." not in who:
        return
    names = re.split(r" [&|] ", who)
    if "|" in who:
        yield from ((f"with {name}", {"session": things.staff(name)}, True) for name in names)
        yield f"without {who}", {"session": things.staff_without(*names)}, False
    else:
        yield f"with {who}", {"session": things.staff(*names)}, True
        yield from ((f"without {name}", {"session": things.staff_without(name)}, False) for name in names)


@pytest.fixture
def things(api, worker, submit):
    return Things(api, worker, submit)


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_each_call_lets_in_exactly_the_callers_of_the_table(things, group):
    wrong = []
    for line in GROUPS[group]:
        path = things.path(line.address)
        for name, identity, may in credentials(line, things):
            for method in sorted(line.tried):
                answer = things.answer(method, path, **identity)
                is_so = is_let_in(answer) == may or (may and line.is_of_django and answer.status_code == 405)
                if not is_so:
                    wrong.append(f"{method} {path} as {name}: {answer.status_code}")
    assert wrong == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_a_method_that_the_table_does_not_name_is_refused_and_no_fault(things, group):
    wrong = []
    named = {line.address: set() for line in GROUPS[group]}
    for line in GROUPS[group]:
        named[line.address] |= line.tried
    of_django = {line.address for line in LINES if line.is_of_django}
    for line in GROUPS[group]:
        if line.address in of_django and not line.is_of_django:
            continue
        path = things.path(line.address)
        callers = [{}, {"session": things.root}]
        callers += [{"bearer": things.bearers[name]} for name in ("operator", "itself") if path.startswith("/api/")]
        for method in {"OPTIONS", "TRACE", "PUT"} if line.is_of_django else set(METHODS) - named[line.address]:
            for identity in callers:
                answer = things.answer(method, path, **identity)
                if is_let_in(answer) and not (line.is_of_django and (identity or line.who == "everybody")):
                    wrong.append(f"{method} {path} as {identity}: {answer.status_code}")
    assert wrong == []


ODD = ("%00", "%ff", "9" * 40, "-1", "%27", "a%2Fb", "%F0%9F%92%A5", "_00", "..", str(uuid.UUID(int=0)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_odd_ids_and_odd_questions_are_no_fault(things, group):
    for line in GROUPS[group]:
        holes = re.findall(r"<[^>]+>", line.address) if "?P" not in line.address else []
        for hole in holes:
            for odd in ODD[:2] if "uuid" in hole else ODD:
                path = things.path(line.address.replace(hole, "ODD")).replace("ODD", odd)
                things.answer("GET", path, session=things.root)
                if odd == ODD[0]:
                    things.answer("POST", path, session=things.root)
        if "GET" in line.tried:
            path = things.path(line.address)
            for query in (
                "%00=%00",
                "q=%00",
                "state=%00&name=%00",
                "state__exact=%00",
                "id__exact=x",
                "e=1",
                "p=x&o=z",
            ):
                things.answer("GET", f"{path}?{query}", session=things.root)


def test_a_form_of_the_admin_reports_a_selection_that_is_no_id(things):
    for path in ("/admin/liveness/server/", "/admin/jobs/trigger/"):
        for pick in ("nonsense", "\0"):
            action = {"/admin/liveness/server/": "cordon", "/admin/jobs/trigger/": "evaluate_now"}[path]
            things.client.cookies.clear()
            things.client.cookies["sessionid"] = things.root
            with transaction.atomic():
                answer = things.client.post(path, {"action": action, "_selected_action": pick, "index": "0"})
                transaction.set_rollback(True)
            assert answer.status_code == 400, (path, pick, answer.status_code)


@pytest.mark.parametrize("path", ["/admin/login/", "/livez", "/admin/instance/poll/", "/api/v1/jobs", "/api/nowhere"])
def test_a_file_that_a_stranger_uploads_is_refused_before_it_is_kept_anywhere(monkeypatch, path):
    def no_file(*args, **kwargs):
        raise AssertionError("a file was begun")

    monkeypatch.setattr("django.core.files.uploadhandler.TemporaryFileUploadHandler.new_file", no_file)
    monkeypatch.setattr("django.core.files.uploadhandler.MemoryFileUploadHandler.new_file", no_file)
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.cookies["csrftoken"] = "t" * 32
    answer = client.post(path, {"a": "b", "file": SimpleUploadedFile("big", b"x" * 3_000_000)})
    assert answer.status_code in (400, 401, 404)
    assert answer.status_code != 400 or b"accepts no files" in answer.content
