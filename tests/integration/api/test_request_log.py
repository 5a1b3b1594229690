"""Log lines of the middleware for requests."""

import logging
import sys

import pytest
from django.contrib.auth import get_user_model
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client
from django.urls import path

from controlplane import site_urls

LOGGER = "controlplane.observability.request_log"


def failing_stream():
    yield b"one"
    raise OSError("the disk is gone")


urlpatterns = [
    path("fails/", lambda request: 1 / 0),
    path("absent/", lambda request: HttpResponse("no", status=404)),
    path("stream/", lambda request: StreamingHttpResponse([b"one", b"two"])),
    path("stream/fails/", lambda request: StreamingHttpResponse(failing_stream())),
    *site_urls.urlpatterns,  # the page of an error links to the others
]


@pytest.fixture
def events(settings, caplog):
    """Return a function that yields the events of the middleware since its last call, with their values."""
    settings.ROOT_URLCONF = sys.modules[__name__]
    caplog.set_level(logging.INFO, LOGGER)

    def read():
        found = [line.msg for line in caplog.records if line.name == LOGGER]
        caplog.clear()
        return found

    return read


def names(events):
    return [event["event"] for event in events]


def test_an_exception_is_logged_once_with_its_request_and_traceback(db, events):
    response = Client(raise_request_exception=False).get("/fails/?a=1", headers={"User-Agent": "robot"})
    assert response.status_code == 500
    started, failed = events()
    assert (started["event"], started["request"], started["user_agent"]) == (
        "request_started", "GET /fails/?a=1", "robot",
    )  # fmt: skip
    assert (failed["event"], failed["code"], failed["exc_info"]) == ("request_failed", 500, True)
    assert failed["request_id"] == started["request_id"] and failed["ip"] == "127.0.0.1"


def test_each_request_has_an_id_of_its_own(db, events):
    for _ in range(2):
        Client().get("/absent/")
    first, finished, second, _ = events()
    assert first["request_id"] == finished["request_id"] != second["request_id"]
    assert (finished["code"], finished["level"]) == (404, "warning")


def test_the_line_of_a_finished_request_names_its_user(db, events):
    user = get_user_model().objects.create_user("one")
    browser = Client()
    browser.force_login(user)
    response = browser.get("/absent/")
    assert events()[-1]["user_id"] == user.pk
    assert "Cookie" not in response.headers.get("Vary", "")
    assert Client().get("/absent/").status_code == 404
    assert events()[-1]["user_id"] is None


def test_a_stream_logs_its_start_and_its_end(db, events):
    assert b"".join(Client().get("/stream/")) == b"onetwo"
    found = events()
    assert names(found) == ["request_started", "request_finished", "streaming_started", "streaming_finished"]
    assert len({event["request_id"] for event in found}) == 1


def test_a_stream_that_breaks_logs_the_exception(db, events):
    response = Client().get("/stream/fails/")
    with pytest.raises(OSError, match="disk"):
        b"".join(response)
    assert names(events())[-1] == "streaming_failed"
