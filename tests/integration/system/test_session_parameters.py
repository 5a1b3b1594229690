"""Session parameters are set as our statements need them, whatever the database's defaults are.

`check` reports missing ones.
"""

import os
import re
import subprocess
import sys
from contextlib import contextmanager

import psycopg
import pytest
from django.core.checks.registry import registry
from django.db import connections

from controlplane import checks
from controlplane.core import database_limits
from controlplane.core.database.silence import WatchedConnection
from controlplane.core.notifications import Listener
from tests.support.processes import ROOT, beside, database, drop

OTHERWISE = {
    "DateStyle": "German, DMY", "IntervalStyle": "sql_standard", "TimeZone": "America/St_Johns",
    "bytea_output": "escape", "extra_float_digits": "-5", "standard_conforming_strings": "off", "array_nulls": "off",
    "transform_null_equals": "on", "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on", "default_transaction_deferrable": "on", "idle_session_timeout": "1h",
    "row_security": "off", "jit": "on", "statement_timeout": "3h", "lock_timeout": "3h",
    "idle_in_transaction_session_timeout": "3h",
}  # fmt: skip


@pytest.fixture(scope="module")
def odd_database():
    """Make a migrated database whose defaults all differ from those of PostgreSQL."""
    url = database()
    name = url.rpartition("/")[2]
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        for parameter, value in OTHERWISE.items():
            admin.execute(f"alter database {name} set {parameter} to '{value}'")
    yield name
    drop(url)


@contextmanager
def connected(name, **options):
    own = connections.create_connection("default")
    own.settings_dict = {
        **own.settings_dict, "NAME": name,
        "OPTIONS": {**own.settings_dict["OPTIONS"], **database_limits.connection_options(), "pool": False, **options},
    }  # fmt: skip
    own._connection_pools = {}
    try:
        yield own
    finally:
        own.close()
        if own.pool:
            own.pool.close()


def read_parameters(cursor):
    cursor.execute("select name, setting from pg_settings where name = any(%s)", [list(OTHERWISE)])
    return dict(cursor.fetchall())


@pytest.fixture(params=[False, {"min_size": 0, "max_size": 1}], ids=["single", "pool"])
def found(request, odd_database, django_db_blocker):
    with django_db_blocker.unblock(), connected(odd_database, pool=request.param) as own, own.cursor() as cursor:
        yield read_parameters(cursor)


def test_every_parameter_that_is_required_is_tried():
    assert OTHERWISE.keys() >= {*database_limits.REQUIRED, *database_limits.PARAMETERS}


def test_a_session_of_django_does_not_depend_on_the_defaults_of_its_database(found):
    assert found.pop("DateStyle").startswith("ISO")
    limits = database_limits.session_limits()
    wanted = {**database_limits.REQUIRED, **database_limits.NOT_COMPILED, **limits}
    assert found == {name: wanted[name] for name in found}
    assert len(found) == len(OTHERWISE) - 1


def test_a_listener_has_the_same_session(odd_database, django_db_blocker, monkeypatch):
    seen = {}
    with django_db_blocker.unblock(), connected(odd_database) as own:
        monkeypatch.setattr("controlplane.core.notifications.connection", own)
        connect = WatchedConnection.connect

        def connect_and_look(**options):
            session = connect(**options)
            seen.update(read_parameters(session.cursor()))
            return session

        monkeypatch.setattr(WatchedConnection, "connect", connect_and_look)
        listener = Listener("session_parameters", lambda content: listener.close())
        listener._listen()
    assert (seen["TimeZone"], seen["default_transaction_isolation"]) == ("UTC", "read committed")
    assert seen["idle_session_timeout"] == "0"


def test_limits_of_none_override_defaults_of_the_database(monkeypatch):
    monkeypatch.setattr(database_limits, "role", database_limits.COMMAND)
    assert database_limits.session_limits()["statement_timeout"] == "0"


def check(name, **environment):
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--database", "default"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "SECRET_KEY": "of this installation" * 2, "DATABASE_URL": beside(name), **environment},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_check_prints_what_a_session_behind_a_pooler_lacks(odd_database):
    assert check(odd_database)[0] == 0
    # Nothing is sent at the start of a session, as a pooler by transaction wants it.
    pooled = dict.fromkeys(database_limits.VARIABLES, "none")
    status, said = check(odd_database, **pooled)
    assert status == 1
    statements = re.findall(r"ALTER ROLE .* SET .*;", said)
    # Django sets the time zone itself.
    assert len(statements) == len(database_limits.REQUIRED) - 1
    assert "DateStyle = 'German, DMY' but need 'ISO'" in said
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement)
        for limit in database_limits.PARAMETERS:
            admin.execute(f"alter database {odd_database} set {limit} = 0")
    status, said = check(odd_database, **pooled)
    assert status == 0
    assert sorted(re.findall(r"SET (\w+) TO", said)) == sorted(database_limits.POOLED_LIMITS)


def test_limits_of_a_projects_own_engine_are_reported_before_a_deployment_only(db, monkeypatch):
    with connections["default"].cursor() as cursor:
        cursor.execute("set local lock_timeout = 0; set local idle_in_transaction_session_timeout = 0")
    databases = {"databases": ["default"]}
    assert {message.id for message in checks.check_database(**databases)} == {"controlplane.W002"}
    assert checks.check_limits_of_other_engine(**databases) == []
    monkeypatch.setattr(checks, "DatabaseWrapper", type("OtherEngine", (), {}))
    assert checks.check_database(**databases) == []
    assert {message.id for message in checks.check_limits_of_other_engine(**databases)} == {"controlplane.I001"}
    assert checks.check_limits_of_other_engine in registry.get_checks(include_deployment_checks=True)
    assert checks.check_limits_of_other_engine not in registry.get_checks()
