"""Error pages for people."""

import logging
from logging.config import DictConfigurator

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane import settings
from tests.support.people import employ


@pytest.fixture
def visitor(db):
    return Client(raise_request_exception=False)


def test_the_root_leads_to_the_instance_page(visitor):
    answer = visitor.get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/instance/")
    assert visitor.post("/").status_code == 405


def test_an_unknown_address_gets_a_page_with_links_to_the_real_ones(visitor, admin_client):
    for reader, way in ((visitor, "/admin/login/?next=/admin/instance/"), (admin_client, '"/admin/instance/"')):
        answer = reader.get("/admn/")
        text = answer.content.decode()
        assert answer.status_code == 404
        assert "No page has this address" in text and way in text and "/api/docs" in text


def test_a_forbidden_page_shows_the_missing_permission_and_the_user(visitor):
    ann = employ("liveness.view_server")
    visitor.force_login(ann)
    answer = visitor.get("/admin/instance/jobs/")
    text = answer.content.decode()
    assert answer.status_code == 403
    assert (
        "You may not see this page" in text and "jobs.view_workerjob" in text and f"signed in as {ann.username}" in text
    )


def test_a_form_without_a_csrf_token_gets_instructions(db):
    visitor = Client(enforce_csrf_checks=True)
    visitor.force_login(User.objects.create_superuser("ann"))
    answer = visitor.post("/admin/instance/poll/", {"every": "3"})
    assert answer.status_code == 403 and "reload the page" in answer.content.decode()


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/admin/instance/"])
def test_a_host_name_that_is_not_allowed_gets_an_explanation_and_one_log_line(visitor, path, capsys):
    config = DictConfigurator(settings.LOGGING)
    config.config["formatters"] = {"lines": config.configure_formatter(config.config["formatters"]["lines"])}
    handler = config.configure_handler(config.config["handlers"]["stderr"])
    logger = logging.getLogger("django.security")
    logger.addHandler(handler)
    try:
        answer = visitor.get(path, headers={"host": "evil.example"})
    finally:
        logger.removeHandler(handler)
    assert answer.status_code == 400 and "not in ALLOWED_HOSTS" in answer.content.decode()
    assert (answer["Content-Type"] == "application/problem+json") == path.startswith("/api/")
    [line] = capsys.readouterr().err.splitlines()
    assert "[warning" in line and "evil.example" in line
