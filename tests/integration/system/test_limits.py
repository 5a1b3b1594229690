"""Limits on database connections: a suspended process does not keep others waiting for long."""

import time

import psycopg
import pytest
from django.db import OperationalError, transaction

from controlplane.core import database_limits, transactions
from liveness.services import detection
from tests.integration.races import test_hot_paths as hot
from tests.support.connecting import connection_parameters


@pytest.fixture
def connected():
    """Connect like a process of a role, and return one setting of the session."""

    def connected(role, monkeypatch):
        monkeypatch.setattr(database_limits, "role", role)
        return psycopg.connect(**connection_parameters(), **database_limits.connection_options())

    return connected


@pytest.mark.parametrize("role", [database_limits.WEB, database_limits.EXECUTOR, database_limits.COMMAND])
def test_every_role_has_limits_on_its_connections(db, connected, monkeypatch, role):
    with connected(role, monkeypatch) as session:
        shown = [session.execute(f"show {name}").fetchone()[0] for name in database_limits.PARAMETERS]
        keepalive = session.execute("show tcp_keepalives_idle").fetchone()[0]
        compiles = session.execute("show jit").fetchone()[0]
    statement, lock, idle = shown
    assert lock != "0"
    assert idle != "0"
    assert statement != "0" or role == database_limits.COMMAND
    assert keepalive in ("0", "10"), "0 over a socket of this machine"
    assert compiles == "off"


def test_a_web_process_gives_up_sooner_than_an_executor():
    roles = database_limits.DEFAULTS[database_limits.WEB], database_limits.DEFAULTS[database_limits.EXECUTOR]
    assert all(web <= executor for web, executor in zip(*roles, strict=True))


def test_the_environment_sets_the_limits_and_what_makes_no_sense_is_refused(monkeypatch):
    monkeypatch.setattr(database_limits, "role", database_limits.COMMAND)
    monkeypatch.setenv("DATABASE_LOCK_TIMEOUT", "90s")
    monkeypatch.setenv("DATABASE_IDLE_TIMEOUT", "none")
    assert database_limits.read_limits() == (None, 90, None)
    assert "-c lock_timeout=90000 " in database_limits.connection_options()["options"]
    for nonsense in ("soon", "0", "-1"):
        monkeypatch.setenv("DATABASE_LOCK_TIMEOUT", nonsense)
        with pytest.raises(ValueError, match="DATABASE_LOCK_TIMEOUT"):
            database_limits.read_limits()


def test_timeouts_in_the_database_url_count_and_none_are_set_without_limits(monkeypatch):
    options = database_limits.connection_options("-c lock_timeout=1")["options"]
    assert options.rindex("-c lock_timeout=") == options.index("-c lock_timeout=1 ")
    for variable in database_limits.VARIABLES:
        monkeypatch.setenv(variable, "none")
    assert "options" not in database_limits.connection_options()


def test_a_transaction_that_stands_still_is_ended_and_its_locks_with_it(db, connected, monkeypatch):
    lock = "lock table liveness_clock in access exclusive mode"
    with connected(database_limits.COMMAND, monkeypatch) as other:
        monkeypatch.setenv("DATABASE_IDLE_TIMEOUT", "0.2s")
        suspended = connected(database_limits.EXECUTOR, monkeypatch)
        suspended.execute(lock)
        other.execute(lock)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            suspended.execute("select 1")


def test_a_check_that_waits_for_the_brake_keeps_no_other_from_advancing_the_clock(committed, threads):
    with transaction.atomic():
        hot.run("lock table liveness_brake in access exclusive mode")
        check = threads(detection.disconnect_silent_servers)
        assert hot.someone_waits()
        other = threads(hot.run, "update liveness_clock set tick = tick")
        other.result(9)  # less than a wait for a lock may take
        assert not check.done()
    check.result(30)


def test_a_transaction_that_was_suspended_for_too_long_is_a_lost_connection_like_any(committed, threads):
    def suspended():
        with transaction.atomic():
            hot.run("set idle_in_transaction_session_timeout = '50ms'")
            time.sleep(0.5)  # the process is suspended for longer than the limit
            hot.run("select 1")

    with pytest.raises(OperationalError) as ended:
        threads(suspended).result(30)
    assert transactions.is_transient_error(ended.value)
