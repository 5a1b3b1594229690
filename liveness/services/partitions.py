"""Make, empty and drop the day partitions of heartbeats, so that no other transaction waits long.

Each partition has the heartbeats of one day in UTC. A heartbeat of a day without a partition goes to the default
partition. PostgreSQL then refuses to make the partition of that day. So the default partition is exchanged for an empty
one, and its rows are moved to the partitions of their days.

Heartbeats and claims never wait long: a change that needs a lock on a whole table gives up after LOCK_TIMEOUT and tries
again later. It waits only for the lock of the table. A reader of a partition also locks the table, so nobody reads the
partition then.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import structlog
from django.db import IntegrityError, OperationalError

from controlplane.core.database import connection, transaction
from liveness.sql import sql
from liveness.sql.rows.partitions import Day, Partition

log = structlog.get_logger()

SERVERS, ATTEMPTS = "liveness_heartbeat", "liveness_attemptheartbeat"
TABLES = (SERVERS, ATTEMPTS)
AHEAD = 7
"""Days after today that have a partition."""
LOCK_TIMEOUT = 0.05
"""Longest wait for a lock in seconds. Heartbeats may queue behind it for as long."""
TRIES, PAUSE = 20, 0.5
"""Largest number of tries of a change, and the seconds between two tries."""
PAGES = 100
"""Number of pages whose rows are moved in one transaction."""
LOCK_NOT_AVAILABLE = "55P03"

Result = TypeVar("Result")


class TableInUse(Exception):
    """The table is locked by another transaction, such as a dump. The next run tries again."""


def make_partitions(table: str, tries: int = TRIES) -> int:
    """Make the missing partitions of today and the next AHEAD days. Return how many.

    Raises TableInUse, or IntegrityError if the default partition has rows of one of these days.
    """
    if not list_missing_days(table):
        return 0
    return change_partitions(table, lambda: attach_days(table, list_missing_days(table)), tries)


def attach_missing_days(table: str, days: list[Day]) -> int:
    return attach_days(table, without_partition(table, days))


def list_missing_days(table: str) -> list[Day]:
    """Return the days from today on that no partition overlaps."""
    return without_partition(table, sql.list_days_to_come.fetch_rows(ahead=AHEAD))


def without_partition(table: str, days: list[Day]) -> list[Day]:
    present = [part for part in sql.list_partitions.fetch_rows(parent=table) if not part.is_default]
    return [day for day in days if not any(overlaps(part, day) for part in present)]


def overlaps(part: Partition, day: Day) -> bool:
    return (part.begins is None or part.begins < day.ends) and (part.ends is None or day.begins < part.ends)


def attach_days(table: str, days: list[Day]) -> int:
    """Make partitions. This locks the default partition, but others may use the table."""
    for day in days:
        name = f"{table}_{day.begins:%Y_%m_%d}"
        execute(
            f"create table {name} (like {table} including defaults including constraints);"
            f" alter table {table} attach partition {name} for values from ('{day.begins}') to ('{day.ends}')"
        )
    return len(days)


def empty_default_partition(table: str, before: datetime | None) -> int:
    """Move the rows of the default partition to the partitions of their days. Make these partitions if needed.

    Rows older than `before` are deleted instead; return their number. Raise TableInUse.
    """
    deleted = move_former_rows(table, before)  # left by an interrupted run
    if has_rows(f"{table}_default"):
        change_partitions(table, lambda: exchange_default_partition(table))
        deleted += move_former_rows(table, before)
    return deleted


def exchange_default_partition(table: str) -> None:
    """Replace the default partition by an empty one, and make the partitions of the missing days.

    The former default partition becomes the table NAME_former. Nothing is scanned, so this takes milliseconds.
    """
    if has_table(f"{table}_former"):
        return  # another process is about to move its rows
    lock_table(table, f"{table}_default")
    execute(
        f"alter table {table} detach partition {table}_default;"
        f" alter table {table}_default rename to {table}_former;"
        f" create table {table}_default (like {table} including defaults including constraints);"
        f" alter table {table} attach partition {table}_default default"
    )
    attach_days(table, list_missing_days(table))


def move_former_rows(table: str, before: datetime | None) -> int:
    """Move the rows of a former default partition. Delete rows older than `before` instead, and return their number."""
    days, pages = change_partitions(table, lambda: survey_former_rows(table, before))
    for day in days:
        try:
            change_partitions(table, partial(attach_missing_days, table, [day]))
        except IntegrityError:
            log.warning("A day of heartbeats stays in the default partition", table=table, day=f"{day.begins:%Y-%m-%d}")
    moves = [partial(move_pages, table, first, before) for first in range(0, pages, PAGES)]
    deleted = sum(change_partitions(table, move) for move in moves)
    change_partitions(table, lambda: drop_former(f"{table}_former"))
    return deleted


def survey_former_rows(table: str, before: datetime | None) -> tuple[list[Day], int]:
    """Return the days without a partition that have rows since `before`, and the number of pages to move."""
    former = f"{table}_former"
    if not has_table(former):
        return [], 0
    days = fetch(
        f"select distinct date_trunc('day', at, 'UTC') from {former}"  # noqa: S608
        " where %(before)s::timestamptz is null or at >= %(before)s order by 1",
        {"before": before},
    )
    ((pages,),) = fetch(f"select pg_relation_size('{former}') / current_setting('block_size')::int")
    return without_partition(table, [Day(day, day + timedelta(days=1)) for (day,) in days]), pages


def move_pages(table: str, first: int, before: datetime | None) -> int:
    if not has_table(f"{table}_former"):
        return 0
    ((deleted,),) = fetch(
        f"with moved as (delete from {table}_former where ctid >= %(first)s::tid and ctid < %(last)s::tid returning *),"  # noqa: S608
        f" kept as (insert into {table} select * from moved"
        " where %(before)s::timestamptz is null or at >= %(before)s returning 1)"
        " select (select count(*) from moved) - (select count(*) from kept)",
        {"first": f"({first},0)", "last": f"({first + PAGES},0)", "before": before},
    )
    return int(deleted)


def drop_former(former: str) -> None:
    if has_table(former) and not has_rows(former):
        execute(f"drop table {former}")


def list_old_partitions(table: str, before: datetime | None) -> list[str]:
    """Return the names of the partitions that end at `before` or earlier, oldest first. If it is None, return none."""
    parts = sql.list_partitions.fetch_rows(parent=table) if before else []
    return [part.name for part in parts if part.ends is not None and before is not None and part.ends <= before]


def count_old_default_rows(table: str, before: datetime | None) -> int:
    """Return how many rows of the default partition are older than `before`."""
    ((rows,),) = fetch(f"select count(*) from {table}_default where at < %(before)s", {"before": before})  # noqa: S608
    return int(rows)


def empty_partition(table: str, name: str) -> None:
    """Empty a partition. This locks only the partition, so the disk has room again even if the table stays in use.

    Raises TableInUse.
    """

    def truncate() -> None:
        if is_partition(table, name):
            execute(f"truncate only {name}")

    change_partitions(table, truncate)


def drop_partition(table: str, name: str) -> bool:
    """Drop a partition. Return False if another process dropped it before. Raises TableInUse."""
    return change_partitions(table, lambda: drop_locked(table, name))


def drop_locked(table: str, name: str) -> bool:
    if not is_partition(table, name):
        return False
    lock_table(table, f"{table}_default", name)
    execute(f"drop table {name}")
    return True


def is_partition(table: str, name: str) -> bool:
    return any(part.name == name for part in sql.list_partitions.fetch_rows(parent=table))


def lock_table(table: str, *partitions: str) -> None:
    """Lock the whole table and some of its partitions. Wait only for the lock of the table."""
    execute(f"lock table only {table} in access exclusive mode")
    for name in partitions:
        execute(f"lock table only {name} in access exclusive mode nowait")


def change_partitions(table: str, change: Callable[[], Result], tries: int = TRIES) -> Result:
    """Run a change in a transaction, with short waits for locks. Raise TableInUse if it never gets its locks.

    One process at a time changes partitions. So a change first reads which partitions there are.
    """
    for tried in range(1, tries + 1):
        try:
            with transaction.atomic():
                execute(f"set local lock_timeout = {round(LOCK_TIMEOUT * 1000)}")
                execute("select pg_advisory_xact_lock(hashtext('partitions of heartbeats'))")
                result = change()
                execute("set local lock_timeout to default")  # if the caller's transaction continues
                return result
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
        if tried < tries:
            time.sleep(PAUSE)
    raise TableInUse(table)


def has_table(name: str) -> bool:
    """Return True if the table exists. Unlike to_regclass(), a scan notices at once that another process dropped it."""
    statement = "select exists (select from pg_class where relname = %(name)s and pg_table_is_visible(oid))"
    ((found,),) = fetch(statement, {"name": name})
    return bool(found)


def has_rows(table: str) -> bool:
    ((found,),) = fetch(f"select exists (select from {table})")  # noqa: S608
    return bool(found)


def execute(statements: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statements)


def fetch(statement: str, params: dict[str, Any] | None = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())
