"""Test the event log: a reader that continues after its last event misses none."""

import json
from io import StringIO

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from liveness.models import ServerEvent
from liveness.services import maintenance, operations, tokens
from liveness.sql import sql
from tests.support.clock import Clock
from tests.support.connecting import connection_parameters
from tests.support.http import Caller
from tests.support.processes import eventually


def happen(count, name="worker"):
    """Create events."""
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
    maintenance.enter_maintenance("operator:me", "")
    moved, cordoned, maintained = lines(viewer.get("/events", Accept="application/x-ndjson"))
    assert (moved["from"], moved["to"], moved["actor"], moved["server"]) == ("CREATED", "RUNNING", "server", server.id)
    assert (cordoned["action"], cordoned["actor"], cordoned["note"]) == ("cordon", "operator:me", "a new disk")
    assert maintained["subject"]["type"] == "instance" and maintained["server"] is None
    assert moved["id"] < cordoned["id"] < maintained["id"]


def test_it_continues_after_the_given_event(viewer, db):
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

    insert = """insert into liveness_serverevent (subject_type, subject_name, actor, reason)
                values ('server', %s, 'server', '')"""
    happen(1, "before")
    with psycopg.connect(**connection_parameters()) as slow:
        slow.execute(insert, ["slow"])
        happen(1, "after")
        # A transaction of another thread may hold back all of them for a moment.
        eventually(lambda: names() == ["before-0"], why="the slow one has a lower number")
        slow.commit()
        eventually(lambda: names() == ["before-0", "slow", "after-0"])
        slow.execute(insert, ["never"])
        happen(1, "last")
        slow.rollback()
    eventually(lambda: names() == ["before-0", "slow", "after-0", "last-0"])


def test_events_are_complete_to_a_moment_before_it_was_looked_who_writes_some(committed):
    Clock().release()
    with connection.cursor() as cursor:
        # In place of PostgreSQL's own: it notes when it is looked at.
        cursor.execute("create temp table looked as select clock_timestamp() as at")
        cursor.execute("""
            create function pg_temp.look() returns bool language plpgsql as
            $$ begin insert into looked values (clock_timestamp()); return true; end $$""")
        cursor.execute("create temp view pg_locks as select * from pg_catalog.pg_locks where pg_temp.look() offset 0")
        cursor.execute("truncate looked")
        horizon = sql.read_events_horizon.fetch_only_row().at
        cursor.execute("select min(at) from looked")
        assert horizon <= cursor.fetchone()[0], "who begins to write after that look has a lower number than others"
        cursor.execute("drop view pg_temp.pg_locks; drop table pg_temp.looked; drop function pg_temp.look()")


def test_an_event_is_held_back_if_the_start_of_a_transaction_is_not_visible(committed):
    Clock().release()
    happen(1, "before")
    horizon = sql.read_events_horizon.fetch_only_row
    with connection.cursor() as cursor, psycopg.connect(**connection_parameters()) as slow:
        slow.execute(
            "insert into liveness_serverevent (subject_type, subject_name, actor, reason)"
            " values ('server', 'slow', 'server', '')"
        )
        cursor.execute("create role reader; grant select on all tables in schema public to reader; set role reader")
        try:
            at = horizon().at
            assert at < ServerEvent.objects.get(subject_name="before-0").at
        finally:
            cursor.execute("reset role; drop owned by reader; drop role reader")


def test_a_command_writes_it_as_lines_of_json(db):
    happen(3)
    out = StringIO()
    call_command("export_events", stdout=out)
    first, *_ = told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["subject"]["name"] for event in told] == ["worker-0", "worker-1", "worker-2"]
    out = StringIO()
    call_command("export_events", "--after", str(first["id"]), stdout=out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == told[1:]
