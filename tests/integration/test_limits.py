"""Who stands still keeps nobody waiting for long: limits on connections, and indexes that are built beside the work."""

import importlib
import time

import psycopg
import pytest
from django.db import OperationalError, connection, migrations, models, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from controlplane.core import database_limits, transactions
from controlplane.core.model_fields import BuildIndex, BuildUnique, ConcurrentBuild
from liveness.services import detection
from tests.integration import test_hot_paths as hot

FIRST_SET = 3
"""The migrations that make the tables: until then there is nothing in them."""


@pytest.fixture
def connected():
    """Connects as a process of some role does; reads one setting of the session."""

    def connected(role, monkeypatch):
        monkeypatch.setattr(database_limits, "role", role)
        given = {name: connection.settings_dict[name.upper()] for name in ("user", "host", "port")}
        return psycopg.connect(
            dbname=connection.settings_dict["NAME"], password=connection.settings_dict["PASSWORD"] or None,
            **{name: value for name, value in given.items() if value}, **database_limits.connection_options(),
        )  # fmt: skip

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


def test_what_the_address_of_the_database_says_counts_and_without_limits_nothing_is_asked(monkeypatch):
    assert database_limits.connection_options("-c lock_timeout=1")["options"].endswith(" -c lock_timeout=1")
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
        other.result(5)
        assert not check.done()
    check.result(30)


def test_a_transaction_that_was_suspended_for_too_long_is_a_lost_connection_like_any(committed, threads):
    def suspended():
        with transaction.atomic():
            hot.run("set idle_in_transaction_session_timeout = '50ms'")
            time.sleep(0.5)  # so long it is suspended
            hot.run("select 1")

    with pytest.raises(OperationalError) as ended:
        threads(suspended).result(30)
    assert transactions.is_transient_error(ended.value)


def later_operations(app):
    """(name, migration, operation) of each operation after the first set."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    in_order = sorted((name, m) for (label, name), m in loader.disk_migrations.items() if label == app)
    for name, migration in in_order[FIRST_SET:]:
        made = {op.name_lower for op in migration.operations if isinstance(op, migrations.CreateModel)}
        for operation in migration.operations:
            if getattr(operation, "model_name_lower", None) not in made:
                yield name, migration, operation


def builds_an_index(operation: Operation) -> bool:
    match operation:
        case migrations.AddIndex():
            return not isinstance(operation, BuildIndex)
        case migrations.AddConstraint():
            return not isinstance(operation, BuildUnique) and not isinstance(
                operation.constraint, models.CheckConstraint
            )
        case migrations.AddField() | migrations.AlterField():
            return operation.field.unique or operation.field.db_index
        case migrations.RunSQL():
            return "index" in str(operation.sql).lower()
    return isinstance(operation, migrations.AlterUniqueTogether | migrations.AlterIndexTogether)


@pytest.mark.parametrize("app", ["liveness", "jobs"])
def test_no_migration_after_the_first_set_builds_an_index_that_others_wait_for(app):
    operations = list(later_operations(app))
    assert not [(name, operation.describe()) for name, _, operation in operations if builds_an_index(operation)]
    for name, migration, operation in operations:
        assert isinstance(operation, ConcurrentBuild) != migration.atomic, f"{name}: indexes alone, and not atomic"


def test_an_index_whose_building_was_interrupted_is_built_anew(committed):
    migration = importlib.import_module("liveness.migrations.0004_reads").Migration("0004_reads", "liveness")
    state = MigrationLoader(connection).project_state([("liveness", "0003_storage")])
    with connection.schema_editor(atomic=False) as editor:
        for _ in range(2):  # the index is there before each
            migration.apply(state.clone(), editor)
    assert hot.run("select indisvalid from pg_index where indexrelid = 'server_inactive'::regclass")
