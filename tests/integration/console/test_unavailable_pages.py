"""Browsers get a page, not JSON, while the database is down or slow, or the control plane is overloaded."""

from unittest.mock import Mock

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test import Client

from controlplane.serving.answers import refuse_browser
from controlplane.serving.seats import Overloaded

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def lost():
    return OperationalError("connection refused")


def slow():
    error = OperationalError("canceling statement due to statement timeout")
    error.__cause__ = psycopg.errors.QueryCanceled()
    return error


@pytest.fixture
def visitor(client, db, django_user_model):
    client.force_login(django_user_model.objects.create_superuser("ann"))
    client.raise_request_exception = False
    return client


@pytest.fixture
def broken(monkeypatch):
    def broken(error):
        monkeypatch.setattr(connection, "ensure_connection", Mock(side_effect=error))

    yield broken
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("error", "why"),
    [(lost(), "The database cannot be reached just now"), (slow(), "A statement took longer than the database allows")],
)
@pytest.mark.parametrize("path", ["", "servers/", "jobs/", "jobs/not-an-id/"])
def test_a_page_without_a_database_is_html_that_reloads_itself(visitor, broken, monkeypatch, path, error, why):
    broken(error)
    answer = visitor.get(f"/admin/instance/{path}", headers=BROWSER)
    monkeypatch.undo()
    page = answer.content.decode()
    assert (answer.status_code, answer["Content-Type"]) == (503, "text/html; charset=utf-8")
    assert int(answer["Retry-After"]) > 0 and answer["Cache-Control"] == "no-store"
    assert why in page and '<meta http-equiv="refresh" content="5">' in page
    assert all(f">{name}</a>" in page for name in ("Overview", "Servers", "Jobs"))


def test_the_tables_of_the_admin_without_a_database_are_html_too(visitor, broken, monkeypatch):
    broken(lost())
    answer = visitor.get("/admin/", headers=BROWSER)
    monkeypatch.undo()
    assert (answer.status_code, answer["Content-Type"]) == (503, "text/html; charset=utf-8")


def test_a_form_without_a_database_is_not_sent_again_by_itself(visitor, broken, monkeypatch):
    broken(lost())
    answer = visitor.post("/admin/instance/jobs/cancel/", {"pick": "x"}, headers=BROWSER)
    monkeypatch.undo()
    assert answer.status_code == 503
    assert "http-equiv" not in answer.content.decode() and "Your form was not sent again" in answer.content.decode()


@pytest.mark.parametrize("headers", [{"Accept": "application/json"}, BROWSER])
def test_a_call_of_the_api_without_a_database_is_a_problem_document(broken, monkeypatch, db, headers):
    broken(lost())
    answer = Client().get("/api/v1/jobs", headers={"Authorization": "Bearer x", **headers})
    monkeypatch.undo()
    assert answer.status_code in (401, 503) and answer["Content-Type"] == "application/problem+json"


def test_a_refused_call_of_a_browser_is_a_page_and_of_a_program_is_not():
    page = refuse_browser(Overloaded(), "/admin/instance/", "GET", BROWSER["Accept"])
    headers = dict(page.headers)
    assert (page.status, headers["Content-Type"]) == (503, "text/html; charset=utf-8")
    assert int(headers["Retry-After"]) > 0 and b"more calls than it can answer" in page.body
    for path, accept in (("/api/v1/jobs", BROWSER["Accept"]), ("/metrics", "*/*")):
        assert dict(refuse_browser(Overloaded(), path, "GET", accept).headers)["Content-Type"].endswith("+json")


def test_a_project_without_our_middleware_gets_the_same_page(settings, admin_user, broken, monkeypatch):
    django = ("sessions.middleware.SessionMiddleware", "auth.middleware.AuthenticationMiddleware")
    settings.MIDDLEWARE = [f"django.contrib.{name}" for name in django]
    visitor = Client()
    visitor.force_login(admin_user)
    broken(lost())
    answer = visitor.get("/admin/instance/jobs/", headers=BROWSER)
    monkeypatch.undo()
    assert (answer.status_code, answer["Content-Type"]) == (503, "text/html; charset=utf-8")
