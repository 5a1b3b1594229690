"""Day partitions of heartbeats: how they are made ahead, dropped by their bounds, and emptied by day."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median

import psycopg
import pytest
from django.core import checks
from django.core.management import call_command
from django.db import connection
from django.test import Client

from controlplane import startup
from jobs.services.retention import prune_old_rows
from liveness.models import AttemptHeartbeat, Heartbeat
from liveness.services import partitions
from liveness.services.partitions import AHEAD, ATTEMPTS, SERVERS, TABLES
from tests.support.clock import Clock
from tests.support.connecting import connection_parameters

DAY = 86400
LONGEST_WAIT = 0.1
"""Longest wait of a heartbeat in seconds that retention may cause."""


def run(statement, params=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def days(table):
    """Return the first moments of the day partitions."""
    return [part.begins for part in partitions.sql.list_partitions.fetch_rows(parent=table) if part.begins]


def today():
    ((now,),) = run("select clock_timestamp()")
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def heartbeat(at=None):
    run("insert into liveness_heartbeat values (coalesce(%s, clock_timestamp()), uuid7())", [at])


def add_partition(table, name, begins, ends):
    run(f"create table {name} partition of {table} for values from ('{begins}') to ('{ends}')")


def warnings():
    found = checks.run_checks(tags=[checks.Tags.database], databases=["default"])
    return [str(message.msg) for message in found if message.id == "controlplane.W003"]


@pytest.fixture
def partitions_as_before(transactional_db):
    """Restore the partitions after a test that commits."""
    before = {table: days(table) for table in TABLES}
    yield
    for table in TABLES:
        run(f"drop table if exists {table}_former")
        for part in partitions.sql.list_partitions.fetch_rows(parent=table):
            if part.begins not in before[table] and not part.is_default:
                run(f"drop table {part.name}")
        for day in set(before[table]) - set(days(table)):
            partitions.attach_days(table, [partitions.Day(day, day + timedelta(days=1))])


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_partitioned_by_days_in_utc_and_has_a_default_partition(db, clock, table):
    run("set local timezone to 'Europe/Berlin'")  # a day there has 23, 24 or 25 hours
    clock.step((datetime(2027, 3, 27, 22, 30, tzinfo=UTC) - run("select clock_timestamp()")[0][0]).total_seconds())
    assert partitions.make_partitions(table) == AHEAD + 1
    parts = partitions.sql.list_partitions.fetch_rows(parent=table)
    assert [part.is_default for part in parts].count(True) == 1
    bounds = [(part.begins, part.ends) for part in parts if not part.is_default]
    assert all(ends - begins == timedelta(days=1) for begins, ends in bounds)
    assert {begins.timestamp() % DAY for begins, _ in bounds} == {0}
    assert run("select partstrat from pg_partitioned_table where partrelid = %s::regclass", [table]) == [("r",)]


@pytest.mark.parametrize("made_by", ["prune", "task", "start"])
def test_partitions_are_made_ahead_by_prune_by_the_task_and_at_start(partitions_as_before, made_by):
    from jobs import tasks

    Clock().step(3 * DAY)
    make = {"prune": lambda: call_command("prune"), "task": tasks.prune, "start": startup.make_room_for_heartbeats}
    make[made_by]()
    for table in TABLES:
        assert days(table)[-AHEAD - 1 :] == [today() + timedelta(days=n) for n in range(AHEAD + 1)]


def test_a_day_that_is_partly_covered_gets_no_second_partition(db, clock):
    begin = today() + timedelta(days=AHEAD + 1)
    add_partition(SERVERS, "by_hand", begin, begin + timedelta(hours=1))
    clock.step(DAY)
    assert partitions.make_partitions(SERVERS) == 0


def test_prune_drops_by_bounds_and_not_by_names(db, clock):
    for name, begins, ends in (("zzz", "2020-02-02 00:00Z", "2020-02-02 01:00Z"),
                               ('"odd name"', "2020-02-02 01:00Z", "2020-02-03 00:00Z")):  # fmt: skip
        add_partition(SERVERS, name, begins, ends)
    add_partition(SERVERS, "liveness_heartbeat_2000_01_01", "2100-01-01 00:00Z", "2100-01-02 00:00Z")
    heartbeat("2020-02-02 00:30Z"), heartbeat("2100-01-01 00:30Z")
    assert partitions.list_old_partitions(SERVERS, today()) == ["zzz", '"odd name"'] + [
        part.name for part in partitions.sql.list_partitions.fetch_rows(parent=SERVERS)
        if part.ends and datetime(2021, 1, 1, tzinfo=UTC) < part.ends <= today()
    ]  # fmt: skip
    prune_old_rows()
    assert not run("select from pg_class where relname in ('zzz', 'odd name')")
    assert Heartbeat.objects.count() == 1


def test_a_default_partition_with_rows_is_a_warning_and_a_metric(db, clock, api):
    metric = 'controlplane_default_partition_rows{{table="{}"}} {}'

    def metrics():
        headers = {"Authorization": f"Bearer {api('viewer').token}"}
        return Client(headers=headers).get("/metrics").content.decode()

    assert warnings() == []
    text = metrics()
    assert metric.format(SERVERS, "0.0") in text and metric.format(ATTEMPTS, "0.0") in text
    clock.step((AHEAD + 2) * DAY)  # no beat for longer than partitions were made for
    heartbeat(), heartbeat()
    (warning,) = warnings()
    assert "default partition" in warning and SERVERS in warning and "2 rows" in warning
    text = metrics()
    assert metric.format(SERVERS, "2.0") in text and metric.format(ATTEMPTS, "0.0") in text


def test_rows_of_the_default_partition_move_to_their_days(db, clock):
    clock.step((AHEAD + 2) * DAY)
    heartbeat()
    clock.step(DAY)
    heartbeat(), heartbeat()
    before = set(Heartbeat.objects.values_list("server_id", "at"))
    assert prune_old_rows()["heartbeats"] == 0
    assert warnings() == []
    assert set(Heartbeat.objects.values_list("server_id", "at")) == before
    assert days(SERVERS) == [today() + timedelta(days=n) for n in range(-1, AHEAD + 1)]
    heartbeat()
    assert warnings() == []


def test_rows_of_many_pages_move_and_old_ones_are_deleted(db, clock, monkeypatch):
    monkeypatch.setattr(partitions, "PAGES", 3)
    clock.step(20 * DAY)
    for age in ("1 s", "10 days"):
        run("insert into liveness_heartbeat select clock_timestamp() - %s::interval, uuid7()"
            " from generate_series(1, 2000)", [age])  # fmt: skip
    assert prune_old_rows()["heartbeats"] == 2000
    assert Heartbeat.objects.count() == 2000
    assert not partitions.has_rows(f"{SERVERS}_default") and not partitions.has_table(f"{SERVERS}_former")


def test_a_move_that_was_interrupted_is_finished_by_the_next_run(partitions_as_before, monkeypatch):
    monkeypatch.setattr(partitions, "PAGES", 1)
    Clock().step((AHEAD + 2) * DAY)
    run("insert into liveness_heartbeat select clock_timestamp(), uuid7() from generate_series(1, 1000)")
    moved, own = [], partitions.move_pages

    def interrupted(table, first, before):
        if moved:
            raise KeyboardInterrupt
        moved.append(first)
        return own(table, first, before)

    monkeypatch.setattr(partitions, "move_pages", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prune_old_rows()
    assert 0 < Heartbeat.objects.count() < 1000
    monkeypatch.setattr(partitions, "move_pages", own)
    prune_old_rows()
    assert Heartbeat.objects.count() == 1000
    assert not partitions.has_table(f"{SERVERS}_former")


def test_a_drop_that_was_interrupted_is_finished_by_the_next_run(partitions_as_before, monkeypatch):
    heartbeat()
    Clock().step(3 * DAY)
    old = partitions.list_old_partitions(SERVERS, today() - timedelta(days=1))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(partitions, "drop_locked", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prune_old_rows()
    assert not Heartbeat.objects.exists(), "it was emptied before"
    assert set(old) <= {part.name for part in partitions.sql.list_partitions.fetch_rows(parent=SERVERS)}
    prune_old_rows()
    assert not set(old) & {part.name for part in partitions.sql.list_partitions.fetch_rows(parent=SERVERS)}


def test_four_prunes_at_once_drop_each_partition_once(partitions_as_before):
    for day in range(1, 9):
        add_partition(SERVERS, f"old_{day}", f"2020-02-{day:02} 00:00Z", f"2020-02-{day + 1:02} 00:00Z")
    Clock().step((AHEAD + 2) * DAY)
    heartbeat()
    expected = len(partitions.list_old_partitions(SERVERS, today() - timedelta(days=1)))
    expected += len(partitions.list_old_partitions(ATTEMPTS, today() - timedelta(days=1)))

    def prune():
        try:
            return prune_old_rows()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        done = [future.result(60) for future in [pool.submit(prune) for _ in range(4)]]
    assert sum(one["partitions"] for one in done) == expected
    assert Heartbeat.objects.count() == 1 and warnings() == []
    assert len(days(SERVERS)) == len(set(days(SERVERS)))


@pytest.mark.parametrize("empties", [False, True], ids=["drop", "truncate"])
@pytest.mark.parametrize("table", [SERVERS, "old_day"])
def test_heartbeats_and_claims_go_on_while_a_drop_waits_for_a_reader(
    partitions_as_before, committed, monkeypatch, table, empties
):
    monkeypatch.setattr(partitions, "change_partitions", partial(partitions.change_partitions, tries=3))
    one = committed()
    one.beat()
    add_partition(SERVERS, "old_day", "2020-02-02 00:00Z", "2020-02-03 00:00Z")
    heartbeat("2020-02-02 00:30Z")
    waits, over = [], []

    def work():
        began = time.monotonic()
        assert one.beat().status_code == 200
        assert one.claim() == []
        return time.monotonic() - began

    def drop():
        try:
            with pytest.raises(partitions.TableInUse):
                (partitions.empty_partition if empties else partitions.drop_partition)(SERVERS, "old_day")
        finally:
            over.append(True)
            connection.close()

    usual = median(work() for _ in range(20))  # on this machine
    with psycopg.connect(**connection_parameters()) as reader:
        reader.execute(f"select count(*) from {table}")  # noqa: S608 - a transaction that stays open, like a dump
        with ThreadPoolExecutor(1) as pool:
            dropped = pool.submit(drop)
            while not over:
                waits.append(work())
            dropped.result(60)
        assert partitions.is_partition(SERVERS, "old_day")
    assert median(waits) < usual + LONGEST_WAIT
    assert partitions.drop_partition(SERVERS, "old_day")


def test_a_table_in_use_is_left_to_the_next_run(partitions_as_before, monkeypatch):
    monkeypatch.setattr(partitions, "PAUSE", 0.01)
    add_partition(SERVERS, "old_day", "2020-02-02 00:00Z", "2020-02-03 00:00Z")
    heartbeat("2020-02-02 00:30Z")
    some = uuid.uuid4()
    AttemptHeartbeat.objects.create(server_id=some, attempt_id=some, role="runner", at="2020-02-02 00:30Z")
    with psycopg.connect(**connection_parameters()) as reader:
        reader.execute("select count(*) from old_day")
        prune_old_rows()
        assert partitions.is_partition(SERVERS, "old_day")
        assert not AttemptHeartbeat.objects.exists()
    prune_old_rows()
    assert not partitions.is_partition(SERVERS, "old_day")
