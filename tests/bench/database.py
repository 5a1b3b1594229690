"""Database of the benchmarks: its contents, and bare copies of its tables. Set up Django first."""

from typing import Any

from django.db import connection

from liveness.models import OWN_DIGEST, ApiToken, Role, Server
from liveness.services import tokens
from tests.support.emptying import empty_database

# Without triggers, like pg_restore: rows in any state, a hundred thousand within seconds.
RESTORE = "set session_replication_role = replica; {}; reset session_replication_role"
SERVERS = """
    insert into liveness_server (
        state, last_heartbeat_at, witnessed_at, heard_observed, state_changed_at, state_changed_observed, state_actor,
        type, name, version, token_id, instance_id, heartbeat_interval, timeout, termination_grace_period,
        worker_task_restart_strategy, tags, max_concurrent, reactivate_on_heartbeat)
    select 'RUNNING', clock_timestamp(), clock_timestamp(), observed_now(), clock_timestamp(), observed_now(), 'server',
           'WORKER', 'server-' || n, '', t.id, uuid7(), 600, 1200, 300, 'IMMEDIATELY', '{script}', 1000000, false
      from liveness_apitoken t, generate_series(1, %s) n where t.name = 'bench worker'
"""
JOBS = """
    insert into jobs_workerjob (owner_id, fingerprint, action, payload, required_tags, priority)
    select t.id, sha256(n::text::bytea), '{"type": "script", "runner": "local", "command": "true"}', '{"n": 1}', %s, %s
      from liveness_apitoken t, generate_series(1, %s) n where t.name = 'bench client'
"""
RUN_ALL = """
    insert into jobs_attempt (job_id, number, server_id, state, started_at, started_observed)
    select j.id, 1, s.id, 'RUNNING', clock_timestamp(), observed_now() from jobs_workerjob j, liveness_server s;
    update jobs_workerjob j set state = 'RUNNING', attempt_id = a.id, attempt_count = 1
      from jobs_attempt a where a.job_id = j.id
"""


def run(statement: str, params: Any = None) -> Any:
    """Run a statement, or several without parameters. Return the first value found, if any."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchone()[0] if cursor.description else None


def begin(servers: int = 0) -> list[tuple[Server, str]]:
    """Empty the database, create API tokens, and return running servers with their server tokens."""
    empty_database()
    run("drop table if exists bare_job, bare_attempt, bare_server, bare_event")
    for role in ("worker", "client"):
        tokens.create_token(f"bench {role}", role)
    run(RESTORE.format(SERVERS), [servers])
    if servers > 5000:
        return []
    registrar = ApiToken.objects.get(name="bench worker").pk
    return [
        (server, tokens.sign_server_token(server.pk, 1, registrar)) for server in Server.objects.filter(token=registrar)
    ]


def add_jobs(number: int, tags: list[str], priority: int = 0) -> None:
    run(JOBS, [tags, priority, number])


def run_all_jobs() -> None:
    """Let the only server run all jobs."""
    run(RESTORE.format(RUN_ALL))


def begin_observing() -> None:
    """Pretend that heartbeats arrive and arrived at the previous check, so that observed time advances."""
    token, _ = ApiToken.objects.get_or_create(digest=OWN_DIGEST, defaults={"name": "own", "role": Role.WORKER})
    own = "update liveness_server set token_id = %s, type = 'WEBSERVER', witnessed_at = clock_timestamp() where id = %s"
    run(own, [token.pk, Server.objects.order_by("-pk").values_list("pk", flat=True)[0]])
    run(
        "update liveness_clock set tick_at = 'epoch', witnessed = true, credit = 10, reading = 0,"
        " advanced_at = clock_timestamp() - interval '5 s'"
    )


def settle_down() -> None:
    """Update the statistics, and write a checkpoint now rather than during a measurement."""
    with connection.cursor() as cursor:
        for statement in ("vacuum analyze", "checkpoint"):
            cursor.execute(statement)


def bare_copy(table: str, name: str, *, filled: bool = True) -> None:
    """Copy a table with its indexes, checks and storage, but without triggers and foreign keys."""
    run(f"drop table if exists {name}; create table {name} (like {table} including all excluding generated)")
    if options := run("select array_to_string(reloptions, ', ') from pg_class where relname = %s", [table]):
        run(f"alter table {name} set ({options})")
    if filled:
        run(f"insert into {name} select * from {table}")  # noqa: S608
