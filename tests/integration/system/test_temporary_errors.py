"""Temporary errors of the database are retried if that is safe, otherwise the call is a 503 with the reason."""

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection

from controlplane.core.database import errors
from controlplane.core.transactions import is_database_down
from jobs.models import WorkerJob
from liveness.models import Instance
from liveness.services import maintenance, tokens
from tests.integration.races.test_hot_paths import run, submit_many
from tests.support.connecting import connection_parameters
from tests.support.http import Caller

TEMPORARY = [
    *(code if len(code) == 5 else f"{code}000" for code in errors.BY_SQLSTATE if code != "0A"),
    "40001",
    "53100",
]
ABOUT_ROWS = ["0A000", "22003", "22P02", "23505", "23514", "42601", "54000", "P0001", "XX000"]
SCRIPT = {"action": {"type": "script", "command": "true"}}


def raise_code(code):
    run(f"do $$ begin raise exception 'as PostgreSQL says it' using errcode = '{code}'; end $$")


def break_submissions(code, times=1000):
    """Let the next insertions of jobs fail with this code."""
    run("create sequence broken_times")
    run(
        f"create function broken() returns trigger language plpgsql as $$ begin if nextval('broken_times') <= {times} "
        f"then raise exception 'as PostgreSQL says it' using errcode = '{code}'; end if; return new; end $$"
    )
    run("create trigger broken before insert on jobs_workerjob for each row execute function broken()")


@pytest.fixture
def breaking(transactional_db):
    yield break_submissions
    run("drop function if exists broken() cascade; drop sequence if exists broken_times")


@pytest.mark.parametrize("code", TEMPORARY)
def test_each_temporary_error_is_an_operational_error_with_a_sentence(transactional_db, threads, code):
    with pytest.raises(OperationalError) as raised:
        threads(raise_code, code).result(30)
    assert errors.classify(raised.value).why
    assert errors.describe(raised.value).endswith(": as PostgreSQL says it")


@pytest.mark.parametrize("code", ABOUT_ROWS)
def test_an_error_about_rows_or_statements_is_not_temporary(transactional_db, threads, code):
    with pytest.raises(DatabaseError) as raised:
        threads(raise_code, code).result(30)
    assert errors.classify(raised.value) is None


@pytest.mark.parametrize("code", ["25006", "25P03", "40001", "40P01", "57P01", "57P05"])
def test_a_transaction_that_such_an_error_undid_is_run_again(breaking, code):
    breaking(code, times=2)
    submit_many(1)
    assert WorkerJob.objects.count() == 1


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("25006", "takes no writes"), ("40001", "conflicted with another"), ("53100", "no room"), ("55P03", "lock"),
        ("57014", "longer than"), ("57P01", "moved to another server"), ("57P05", "after a timeout"),
    ],
)  # fmt: skip
def test_a_call_is_a_503_that_explains_what_is_wrong_with_the_database(breaking, api_of, code, why):
    client = api_of("client")
    breaking(code)
    answer = client.post("/jobs", SCRIPT)
    assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
    assert why in answer.json()["detail"] and "nothing was changed" in answer.json()["detail"]
    assert int(answer.headers["Retry-After"]) > 0
    assert not WorkerJob.objects.exists()


@pytest.fixture
def api_of(transactional_db):
    return lambda role: Caller(tokens.create_token(f"a {role}", role))


def end_session(pid):
    with psycopg.connect(**connection_parameters(), autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", [pid])
        while other.execute("select 1 from pg_stat_activity where pid = %s", [pid]).fetchone():
            pass


def make_session_read_only():
    run("set session characteristics as transaction read only")


def terminate_own_session():
    end_session(connection.connection.info.backend_pid)


def idle_for_too_long():
    pid = connection.connection.info.backend_pid
    with psycopg.connect(**connection_parameters(), autocommit=True) as other:
        run("set idle_session_timeout = '1ms'; select pg_sleep(0.01)")
        while other.execute("select 1 from pg_stat_activity where pid = %s", [pid]).fetchone():
            pass


@pytest.mark.parametrize("spoil", [make_session_read_only, terminate_own_session, idle_for_too_long])
def test_a_session_that_is_of_no_use_any_more_is_replaced(committed, threads, spoil):
    def enter():
        run("select 1")
        former = connection.connection
        spoil()
        maintenance.enter_maintenance("operator:me", "")
        assert former.closed and connection.connection is not former

    threads(enter).result(30)
    assert Instance.objects.get().maintenance_since


def test_one_lost_session_is_not_taken_for_a_database_that_is_away(transactional_db, threads):
    def lose():
        with pytest.raises(OperationalError) as raised:
            raise_code("57P01")
        return is_database_down(raised.value)

    assert threads(lose).result(30) is False


def test_a_database_that_takes_no_writes_stops_the_steps_that_follow(transactional_db, threads):
    def write():
        make_session_read_only()
        with pytest.raises(OperationalError) as raised:
            run("update liveness_clock set took = took")
        return is_database_down(raised.value)

    assert threads(write).result(30) is True
