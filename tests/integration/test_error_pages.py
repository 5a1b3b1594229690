"""What a person reads where there is nothing, or nothing for him."""

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


def test_where_no_page_is_it_is_said_with_the_way_to_those_that_are(visitor, admin_client):
    for reader, way in ((visitor, "/admin/login/?next=/admin/instance/"), (admin_client, '"/admin/instance/"')):
        answer = reader.get("/admn/")
        text = answer.content.decode()
        assert answer.status_code == 404
        assert "No page has this address" in text and way in text and "/api/docs" in text


def test_who_may_not_see_a_page_reads_which_permission_it_needs_and_as_whom_he_is_signed_in(visitor):
    ann = employ("liveness.view_server")
    visitor.force_login(ann)
    answer = visitor.get("/admin/instance/jobs/")
    text = answer.content.decode()
    assert answer.status_code == 403
    assert (
        "You may not see this page" in text and "jobs.view_workerjob" in text and f"signed in as {ann.username}" in text
    )


def test_a_form_without_its_secret_is_told_what_to_do(db):
    visitor = Client(enforce_csrf_checks=True)
    visitor.force_login(User.objects.create_superuser("ann"))
    answer = visitor.post("/admin/instance/poll/", {"every": "3"})
    assert answer.status_code == 403 and "load the page again" in answer.content.decode()


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/admin/instance/"])
def test_who_comes_under_a_name_that_is_not_allowed_reads_so_and_is_one_line_of_the_log(visitor, path, capsys):
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
