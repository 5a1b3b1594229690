"""Delete all committed rows from all tables. Set up Django first."""

from functools import cache

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.db import connection, transaction

from liveness.models import Clock, Instance

KEPT = (Clock, Instance)  # tables whose only row comes from a migration
DEFAULTS = {model: ", ".join(f"{field.column} = default" for field in model._meta.fields) for model in KEPT}
# The row of the instance stays: a connection that waits for its lock would find it deleted, and go on without a lock.
RESTART = f"""update liveness_clock set {DEFAULTS[Clock].replace("tick_at = default", "tick_at = 'epoch'")};
    update liveness_instance set {DEFAULTS[Instance]}"""  # noqa: S608
LARGEST = 4
"""Number of pages of a table, and of each of its indexes, whose rows are deleted.

Others, analysed tables and jobs are truncated, so that the next test finds them as new and no plan depends on earlier
tests. To truncate all tables would take 150 ms.
"""

# Tables that refer to ours are emptied too, as by TRUNCATE … CASCADE, and the partitions of each table.
REACHED = """
    with recursive reached(id) as (
        select name::regclass::oid from unnest(%s::text[]) name
        union
        select more.id
          from reached
          cross join lateral (select conrelid from pg_constraint where confrelid = reached.id and contype = 'f'
                              union all
                              select inhrelid from pg_inherits where inhparent = reached.id) more(id)
    )
    select id from reached where id <> all (%s::text[]::regclass[]::oid[])
"""
USED = """
    select oid::regclass::text, reltuples >= 0 or relname = 'jobs_workerjob' or exists (
               select from (select oid union all select indexrelid from pg_index where indrelid = oid) part(id)
                where pg_relation_size(part.id) > %s * current_setting('block_size')::int)
      from pg_class where oid = any (%s::oid[]) and relkind = 'r' and pg_relation_size(oid) > 0
"""


def empty_database() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        # Lock in the order of the product: first the instance, as new connections do, then servers, as heartbeats do.
        # The other locks wait for transactions that still write.
        cursor.execute("select from liveness_instance for update")
        cursor.execute(f"lock table liveness_server; lock table {', '.join(table_names())}")
        cursor.execute(REACHED, [table_names(), [model._meta.db_table for model in KEPT]])
        ids = [id for (id,) in cursor.fetchall()]
        cursor.execute(USED, [LARGEST, ids])
        used = cursor.fetchall()
        large, small = [name for name, is_large in used if is_large], [name for name, is_large in used if not is_large]
        if large:
            cursor.execute(f"truncate {', '.join(large)} cascade")
        # With the role of a replica no trigger is called, such as those of append-only tables.
        deletions = "; ".join(f"delete from {name}" for name in small)  # noqa: S608
        cursor.execute(f"set local session_replication_role = replica; {deletions}")
        cursor.execute(f"set local session_replication_role = origin; {RESTART}")


@cache
def table_names() -> list[str]:
    models = [
        get_user_model(),
        Session,
        *(model for name in ("liveness", "jobs") for model in apps.get_app_config(name).get_models()),
    ]
    return [model._meta.db_table for model in models if model not in KEPT]
