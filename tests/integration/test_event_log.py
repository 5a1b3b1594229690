"""All events in one log, for an audit: whoever goes on behind the last that he has misses none."""

import json
from io import StringIO

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from liveness.models import ServerEvent
from liveness.services import operations, tokens
from tests.support.clock import Clock
from tests.support.http import Caller


def happen(count, name="worker"):
    """So many transitions."""
    ServerEvent.objects.bulk_create(
        ServerEvent(subject_type="server", subject_name=f"{name}-{number}", actor="server", reason="")
        for number in range(count)
    )


@pytest.fixture
def viewer(api):
    return api("viewer")


def lines(answer):
    assert answer.headers["Content-Type"].startswith("application/x-ndjson"), answer.content
    return [json.loads(line) for line in answer.content.splitlines()]


def test_it_has_what_happened_to_servers_and_what_operators_did_oldest_first(viewer, worker):
    server = worker()
    operations.cordon_server(server.id, "operator:me", "a new disk")
    operations.enter_maintenance("operator:me", "")
    moved, cordoned, maintained = lines(viewer.get("/events", Accept="application/x-ndjson"))
    assert (moved["from"], moved["to"], moved["actor"], moved["server"]) == ("CREATED", "RUNNING", "server", server.id)
    assert (cordoned["action"], cordoned["actor"], cordoned["note"]) == ("cordon", "operator:me", "a new disk")
    assert maintained["subject"]["type"] == "instance" and maintained["server"] is None
    assert moved["id"] < cordoned["id"] < maintained["id"]


def test_it_goes_on_behind_the_event_that_is_named(viewer, db):
    happen(5)
    first = viewer.get("/events?limit=2").json()
    assert [item["subject"]["name"] for item in first["items"]] == ["worker-0", "worker-1"]
    rest = viewer.get(f"/events?after={first['last']}").json()
    assert [item["subject"]["name"] for item in rest["items"]] == ["worker-2", "worker-3", "worker-4"]
    assert viewer.get(f"/events?after={rest['last']}").json() == {"items": [], "last": rest["last"]}


@pytest.mark.parametrize("odd", ["after=-1", "after=x", "limit=0", "limit=1001", "befor=1"])
def test_what_is_asked_oddly_is_refused(viewer, odd):
    assert viewer.get(f"/events?{odd}").status_code == 400


def test_an_event_is_held_back_until_no_earlier_one_can_come(committed):
    Clock().release()
    viewer = Caller(tokens.create_token("viewer", "viewer"))
    start = viewer.get("/events").json()["last"]

    def names():
        return [item["subject"]["name"] for item in viewer.get(f"/events?after={start}").json()["items"]]

    given = {**settings.DATABASES["default"], **connection.settings_dict}
    place = {"host": given["HOST"], "port": given["PORT"], "user": given["USER"], "password": given["PASSWORD"]}
    insert = """insert into liveness_serverevent (subject_type, subject_name, actor, reason)
                values ('server', %s, 'server', '')"""
    happen(1, "before")
    with psycopg.connect(dbname=given["NAME"], **{k: v for k, v in place.items() if v}) as slow:
        slow.execute(insert, ["slow"])
        happen(1, "after")
        assert names() == ["before-0"], "the slow one has a lower number"
        slow.commit()
        assert names() == ["before-0", "slow", "after-0"]
        slow.execute(insert, ["never"])
        happen(1, "last")
        slow.rollback()
    assert names() == ["before-0", "slow", "after-0", "last-0"]


def test_a_command_writes_it_as_lines_of_json(db):
    happen(3)
    out = StringIO()
    call_command("export_events", stdout=out)
    first, *_ = told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["subject"]["name"] for event in told] == ["worker-0", "worker-1", "worker-2"]
    out = StringIO()
    call_command("export_events", "--after", str(first["id"]), stdout=out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == told[1:]
