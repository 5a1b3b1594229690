"""The oldest snapshot that keeps dead rows: a metric, a concern that names its session, and an alert.

None shows its query.
"""

import json
import re
from contextlib import contextmanager
from html import unescape

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from jobs.models import Incident
from jobs.services.alerts import run_alerts
from liveness.services import tokens
from tests.support.clock import Clock
from tests.support.http import Caller
from tests.support.people import viewing
from tests.support.processes import eventually

SECRET_QUERY = "select 'a secret literal', count(*) from jobs_workerjob"


@contextmanager
def open_snapshot(name="pg_dump", isolation=psycopg.IsolationLevel.REPEATABLE_READ):
    """Hold a snapshot of a session with this application name, and yield the session."""
    options = {key: value for key, value in connection.get_connection_params().items() if key != "pool"}
    with psycopg.connect(**{**options, "application_name": name, "cursor_factory": None}) as session:
        session.isolation_level = isolation
        session.execute(SECRET_QUERY)
        yield session
        session.rollback()


@pytest.fixture
def viewer(transactional_db):
    return Caller(tokens.create_token("a viewer", "viewer"))


@pytest.fixture
def metric(viewer):
    client = Client(headers={"Authorization": f"Bearer {viewer.token}"})

    def metric():
        text = client.get("/metrics").content.decode()
        assert "secret literal" not in text and "pg_dump" not in text
        return float(re.search(r"^controlplane_oldest_snapshot_seconds (\S+)$", text, re.MULTILINE)[1])

    return metric


@pytest.fixture
def concerns(viewer):
    def concerns(path="/instance"):
        answer = viewer.get(path)
        assert "secret literal" not in json.dumps(answer.json())
        return [one for one in answer.json()["verdict"]["concerns"] if one["kind"] == "oldest_snapshot"]

    return concerns


def test_the_metric_is_the_age_of_the_oldest_snapshot(metric):
    eventually(lambda: metric() == 0)
    with open_snapshot():
        Clock().advance(510)
        with open_snapshot("psql"):
            assert 500 <= metric() < 560
    Clock().advance(1)
    eventually(lambda: metric() == 0)


def test_a_session_without_a_snapshot_is_none(metric):
    with open_snapshot(isolation=psycopg.IsolationLevel.READ_COMMITTED):
        Clock().advance(510)
        eventually(lambda: metric() == 0)


def test_a_transaction_that_has_written_keeps_rows_too(metric):
    with open_snapshot(isolation=psycopg.IsolationLevel.READ_COMMITTED) as session:
        session.execute("create temporary table some_rows ()")
        Clock().advance(510)
        assert metric() >= 500


def test_an_older_snapshot_than_the_setting_is_a_concern(concerns, settings):
    with open_snapshot() as session:
        Clock().advance(240)
        eventually(lambda: concerns() == [])
        Clock().advance(65)
        [concern] = concerns()
        assert concern["tone"] == "worry" and -361 < concern["seconds"] <= -300
        assert re.match(
            rf"A transaction of pg_dump \(process {session.info.backend_pid}\) has been open for 5 min", concern["text"]
        )
        settings.ALERTS = {"OLDEST_SNAPSHOT": "1h"}
        eventually(lambda: concerns() == [])
        settings.ALERTS = {"OLDEST_SNAPSHOT": None}
        eventually(lambda: concerns() == [])


def test_the_overview_shows_the_session_and_no_query(committed, concerns, client):
    committed()
    user = User.objects.create_user("reader", is_staff=True)
    user.user_permissions.set(viewing())
    client.force_login(user)
    with open_snapshot("<b>dump</b>") as session:
        Clock().advance(370)
        page = client.get("/admin/instance/").content.decode()
        assert "<b>dump</b>" not in page and "secret literal" not in page
        text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", page)))
        assert f"A transaction of <b>dump</b> (process {session.info.backend_pid}) has been open for 6 min" in text
    eventually(lambda: concerns() == [])


def test_a_session_without_a_name_is_shown_by_its_process(concerns):
    with open_snapshot("") as session:
        Clock().advance(370)
        [concern] = concerns()
        assert f"a session without a name (process {session.info.backend_pid})" in concern["text"]


def test_an_alert_is_sent_for_an_old_snapshot(concerns, settings):
    settings.ALERTS = {"CHECK_OVERDUE": False}
    with open_snapshot():
        Clock().advance(370)
        run_alerts()
        [incident] = Incident.objects.all()
        assert (incident.rule, incident.severity) == ("oldest_snapshot", "warning")
        assert "pg_dump" in incident.summary and "secret literal" not in json.dumps(incident.details)
