"""Test sessions: signed-in staff may call the API with their session and its CSRF token."""

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.crypto import get_random_string

from jobs.api.sessions import operator_permissions
from jobs.models import WorkerJob
from jobs.permissions import VIEWS
from liveness.models import ApiToken, ServerEvent
from tests.support.executions import SCRIPT, step
from tests.support.people import SEES_ALL, permissions

pytestmark = pytest.mark.django_db


class Browser:
    """Signed-in user whose browser sends its cookies, and the CSRF token on request."""

    def __init__(self, **fields):
        may = fields.pop("may", [])
        self.user = User.objects.create_user(get_random_string(8), **fields)
        self.user.user_permissions.set(permissions([*may, SEES_ALL]))
        self.client = Client(enforce_csrf_checks=True, raise_request_exception=False)
        self.client.force_login(self.user)
        self.client.cookies["csrftoken"] = self.token = "t" * 32

    def call(self, method, path, body=None, *, csrf=True, **headers):
        headers |= {"X-CSRFToken": self.token} if csrf else {}
        content = b"" if body is None else json.dumps(body).encode()
        return self.client.generic(method, f"/api/v1{path}", content, "application/json", headers=headers)

    def get(self, path, **fields):
        return self.call("GET", path, **fields)

    def post(self, path, body, **fields):
        return self.call("POST", path, body, **fields)


@pytest.fixture
def admin(db):
    return Browser(is_staff=True, is_superuser=True)


def test_a_session_reads_without_the_csrf_token_and_acts_only_with_it(admin, worker):
    one = worker()
    assert admin.get("/servers", csrf=False).json()["items"][0]["id"] == one.id
    refused = admin.post(f"/servers/{one.id}/cordon", {"note": "n"}, csrf=False)
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf_failed")
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert not ServerEvent.objects.exclude(action="").exists()
    assert admin.post(f"/servers/{one.id}/cordon", {"note": "n"}).json()["cordoned"]
    assert ServerEvent.objects.get(action="cordon").actor == f"operator:{admin.user.username}"


@pytest.mark.parametrize("token", ["x" * 32, ""])
def test_another_csrf_token_is_none(admin, token):
    answer = admin.post("/jobs", {"action": SCRIPT}, csrf=False, **{"X-CSRFToken": token})
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed")
    assert not WorkerJob.objects.exists()


@pytest.mark.parametrize("method", ["PATCH", "DELETE", "POST"])
def test_no_method_that_changes_anything_goes_without_it(admin, method):
    answer = admin.call(method, "/triggers/0190b3c4-0000-7000-8000-000000000000", {}, csrf=False)
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed")


def test_who_is_not_signed_in_or_not_staff_is_unauthenticated(admin):
    nobody = Client(enforce_csrf_checks=True)
    for client in (nobody, Browser(is_superuser=True).client):
        answer = client.get("/api/v1/servers")
        assert (answer.status_code, answer.json()["code"]) == (401, "token_missing")
        answer = client.post("/api/v1/jobs", {"action": SCRIPT}, "application/json")
        assert (answer.status_code, answer.json()["code"]) == (401, "token_missing")
    admin.user.is_active = False
    admin.user.save()
    assert admin.get("/servers").status_code == 401


def test_staff_with_all_view_permissions_are_viewers(worker):
    worker()
    viewer = Browser(is_staff=True, may=VIEWS.values())
    assert viewer.get("/servers").status_code == 200
    assert viewer.get("/jobs").status_code == 200
    assert viewer.client.get("/metrics").status_code == 200
    refused = viewer.post("/jobs", {"action": SCRIPT})
    assert (refused.status_code, refused.json()["code"]) == (403, "wrong_role")


def test_staff_with_all_actions_are_operators_and_with_one_less_a_viewer(worker):
    one = worker()
    every = sorted(operator_permissions())
    assert {"liveness.cordon_server", "jobs.fail_workerjob", "jobs.evaluate_trigger"} <= set(every)
    operator = Browser(is_staff=True, may=[*VIEWS.values(), *every])
    assert operator.post(f"/servers/{one.id}/cordon", {"note": "n"}).status_code == 200
    viewer = Browser(is_staff=True, may=[*VIEWS.values(), *every[1:]])
    assert viewer.post(f"/servers/{one.id}/uncordon", {"note": "n"}).json()["code"] == "wrong_role"


@pytest.mark.parametrize("lacks", VIEWS)
def test_staff_without_one_view_permission_read_nothing(lacks):
    may = {*VIEWS.values(), *operator_permissions()} - {VIEWS[lacks]}
    answer = Browser(is_staff=True, may=may).get("/jobs")
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_role")
    assert VIEWS[lacks] in answer.json()["detail"]


def test_no_session_is_a_server(admin, worker):
    one = worker()
    body = {"type": "WORKER", "name": "n", "instance_id": one.id}
    assert admin.post("/servers", body).json()["code"] == "wrong_role"
    for call in ("heartbeat", "claims", "reports"):
        answer = admin.post(f"/servers/{one.id}/{call}", {})
        assert (answer.status_code, answer.json()["code"]) == (403, "not_your_server")


def test_jobs_of_a_session_belong_to_its_user_and_a_key_finds_them_again(admin):
    body = {"action": SCRIPT, "key": "once"}
    first, again = admin.post("/jobs", body), admin.post("/jobs", body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert admin.post("/executions", {"name": "n", "steps": [step("a")]}).status_code == 201
    [owner] = ApiToken.objects.all()
    assert (owner.name, owner.role, WorkerJob.objects.first().owner) == (admin.user.username, "operator", owner)
    other = Browser(is_staff=True, is_superuser=True)
    assert other.post("/jobs", body).status_code == 201


def test_a_token_counts_before_a_session_and_needs_no_csrf_token(admin, api):
    headers = {"Authorization": f"Bearer {api('viewer').token}"}
    assert admin.post("/jobs", {"action": SCRIPT}, csrf=False, **headers).json()["code"] == "wrong_role"
    wrong = admin.get("/servers", Authorization="Bearer cp_wrong")
    assert (wrong.status_code, wrong.json()["code"]) == (401, "token_unknown")
