"""Calls with a token skip the middleware for browsers, and nothing else."""

import logging

import pytest
from django.conf import settings
from django.test import Client
from django.test.client import ClientHandler

from controlplane.serving.lean_calls import FOR_BROWSERS
from liveness.services import tokens
from tests.support.http import LeanClientHandler

JOB = {"action": {"type": "script", "command": "true"}, "key": "the same"}
POLICY = "Content-Security-Policy"
REQUEST_LOG = "controlplane.observability.request_log"


@pytest.fixture
def bearer(db):
    return {"Authorization": f"Bearer {tokens.create_token('one', 'client')}"}


def client(handler=LeanClientHandler):
    client = Client(raise_request_exception=False)
    client.handler = handler()
    return client


def test_what_is_passed_by_is_there():
    assert set(settings.MIDDLEWARE) >= FOR_BROWSERS


@pytest.mark.parametrize(
    ("path", "body"), [("/jobs", JOB), ("/jobs", {}), ("/jobs", None), ("/nowhere", JOB), ("/executions", [])]
)
def test_a_call_is_answered_as_all_the_middleware_would_have_it(bearer, path, body):
    ours, theirs = (
        client(handler).post(f"/api/v1{path}", body, "application/json", headers=bearer)
        for handler in (LeanClientHandler, ClientHandler)
    )
    assert ours.content == theirs.content
    assert {ours.status_code, theirs.status_code} <= {200, 201} or ours.status_code == theirs.status_code
    differing = ours.headers.items() ^ theirs.headers.items()
    assert {name for name, _ in differing} - {"Vary"} == {POLICY, "X-Frame-Options"} & set(theirs.headers)
    assert "Cookie" not in ours.headers.get("Vary", "")


@pytest.mark.parametrize("authorization", [None, "Basic YTpi", "Bearer", ""])
def test_a_call_without_a_token_goes_through_everything(db, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    assert POLICY in client().get("/api/v1/jobs", headers=headers).headers
    assert POLICY in client().get("/livez", headers={"Authorization": "Bearer x"}).headers


def test_a_call_with_a_token_still_comes_by_tls_and_by_a_name_of_ours(bearer, settings):
    settings.SECURE_SSL_REDIRECT = True
    assert client().get("/api/v1/jobs", headers=bearer).status_code == 301
    settings.SECURE_SSL_REDIRECT = False
    settings.ALLOWED_HOSTS = ["controlplane.example"]
    assert client().get("/api/v1/jobs", headers=bearer).status_code == 400


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
def test_log_lines_name_the_request_and_the_caller_of_this_request_only(bearer, caplog, level):
    caplog.set_level(level, REQUEST_LOG)
    wrong = client().get("/api/v1/jobs/wait", headers={"Authorization": "Bearer cp_wrong"}, REMOTE_ADDR="192.0.2.7")
    assert wrong.status_code == 401
    (refused,) = (line.msg for line in caplog.records if "refused" in str(line.msg))
    assert refused["ip"] == "192.0.2.7"
    (finished,) = (line.msg for line in caplog.records if "request_finished" in str(line.msg))
    assert finished["request_id"] == refused["request_id"]
    caplog.clear()
    assert client().get("/api/v1/jobs", headers=bearer).status_code == 200
    said = [line.msg["event"] for line in caplog.records if line.name == REQUEST_LOG]
    assert said == (["request_started", "request_finished"] if level == logging.INFO else [])


def test_without_a_proxy_a_header_does_not_name_the_caller(db, caplog):
    headers = {"Authorization": "Bearer cp_wrong", "X-Forwarded-For": "198.51.100.1"}
    client().get("/api/v1/jobs", headers=headers, REMOTE_ADDR="192.0.2.7")
    assert {line.msg["ip"] for line in caplog.records if "refused" in str(line.msg)} == {"192.0.2.7"}
