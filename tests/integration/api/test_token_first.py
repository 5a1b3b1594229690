"""The token is checked before the body: a caller without permission gets no errors about the body."""

import uuid

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from controlplane.agent.limits import BODY_LIMIT
from liveness.models import ApiToken, Server
from tests.support.http import Caller

pytestmark = pytest.mark.django_db

BAD = [b"", b"{", b"[]", b'{"x": 1}', b"\xff", b'"' + b"x" * BODY_LIMIT + b'"']
POSTS = [
    "/servers", "/jobs", "/executions", "/triggers", "/maintenance/enter", "/brake/release",
    "/recovery/requeue-stale-claimed", *(f"/jobs/{uuid.UUID(int=1)}/{call}" for call in ("cancel", "fail")),
    *(f"/servers/{uuid.UUID(int=1)}/{call}" for call in ("cordon", "drain")),
]  # fmt: skip
OF_SERVERS = ("heartbeat", "claims", "reports")
bodies = pytest.mark.parametrize("body", BAD, ids=lambda body: str(body[:10]))


def revoked(api):
    caller = api("worker")
    ApiToken.objects.update(revoked_at="2020-01-01T00:00:00Z")
    return caller


@bodies
@pytest.mark.parametrize("path", POSTS)
def test_a_wrong_api_token_with_a_bad_body_is_a_401(api, path, body):
    for caller in (Caller("cp_invented"), Caller(None), revoked(api)):
        assert caller.call("POST", path, body).status_code == 401


@bodies
def test_a_token_of_another_role_with_a_bad_body_is_a_403(api, body):
    for role in ("client", "viewer", "operator"):
        assert api(role).call("POST", "/servers", body).json()["code"] == "wrong_role"


@bodies
def test_a_good_token_with_a_bad_body_gets_the_error_of_the_body(api, body):
    assert api("worker").call("POST", "/servers", body).status_code == (413 if len(body) > BODY_LIMIT else 400)


def test_a_good_token_with_a_body_of_another_type_gets_that_error(api):
    caller = api("worker")
    answer = caller.client.generic("POST", "/api/v1/servers", b"a=1", "application/x-www-form-urlencoded",
                                   headers={"Authorization": f"Bearer {caller.token}"})  # fmt: skip
    assert answer.status_code == 415


@bodies
@pytest.mark.parametrize("call", OF_SERVERS)
def test_with_a_bad_body_a_revoked_token_is_a_401_and_a_purged_server_a_410(worker, call, body):
    one = worker()
    path = f"/servers/{one.id}/{call}"
    Server.objects.filter(pk=one.id).update(token_version=2)
    # Some of them accept an empty body; then the statement checks the token.
    assert one.call("POST", path, body).json()["code"] == "token_revoked"
    Server.objects.filter(pk=one.id).delete()
    assert one.call("POST", path, body).json()["code"] == "server_unknown"


def test_a_file_of_a_stranger_goes_to_no_disk(client, monkeypatch):
    monkeypatch.setattr("django.core.files.temp.NamedTemporaryFile", lambda *_, **__: pytest.fail("it is on the disk"))
    large = SimpleUploadedFile("large", b"x" * 4 * BODY_LIMIT)
    for data in ({"username": "a", "password": "b", "file": large}, {"file": large}):
        assert client.post("/admin/login/", data).status_code in (200, 400)
        large.seek(0)
