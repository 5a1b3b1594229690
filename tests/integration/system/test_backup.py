"""Test the promise of docs/how-to/backup.md: a dump of a running control plane restores a complete one elsewhere."""

import os
import subprocess
import sys

import pytest
from psycopg import connect, sql

from controlplane.embedded import postgres_binaries
from liveness.services import tokens
from tests.support.connecting import connection_parameters
from tests.support.http import Caller
from tests.support.processes import ROOT

COPY = f"restored_{os.getpid()}"
PROGRAMS = postgres_binaries.find_wheel() / "pginstall18" / "bin"


@pytest.fixture
def here(committed):
    """Return the parameters of a connection to the database of the tests."""
    return connection_parameters()


@pytest.fixture
def copy(here):
    """Return the address of an empty database."""
    with connect(**{**here, "dbname": "postgres"}, autocommit=True) as server:
        server.execute(sql.SQL("create database {}").format(sql.Identifier(COPY)))
        yield address(**{**here, "dbname": COPY})
        server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(COPY)))


def address(dbname, host, port, user, password=""):
    return f"postgresql://{user}:{password}@/{dbname}?host={host}&port={port}"


def run(*command, **variables):
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def contents(place):
    """Return the number of rows of each table, the functions and triggers, and the jobs and attempts."""
    with connect(place) as database:
        tables = [
            name
            for (name,) in database.execute(
                "select tablename from pg_tables where schemaname = 'public' order by tablename"
            )
        ]
        assert tables, f"{database.info.dbname} has no tables"
        counts = {
            name: database.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(name))).fetchone()
            for name in tables
        }
        code = database.execute(
            "select proname from pg_proc where pronamespace = 'public'::regnamespace order by 1"
        ).fetchall()
        triggers = database.execute("select tgname from pg_trigger where not tgisinternal order by 1").fetchall()
        indexes = database.execute("select indexdef from pg_indexes where schemaname = 'public' order by 1").fetchall()
        jobs = database.execute("select id, state, payload from jobs_workerjob order by id").fetchall()
    return counts, code, triggers, indexes, jobs


def test_a_dump_that_was_taken_at_work_is_a_control_plane_when_it_is_restored(committed, here, copy, tmp_path):
    client = Caller(tokens.create_token("client", "client"))

    def submit():
        client.post("/jobs", {"action": {"type": "script", "command": "true"}})

    submit()
    one = committed(name="one")
    one.complete(one.hold(), {"answer": 42})
    submit()
    one.hold()
    submit()
    dump = str(tmp_path / "controlplane.dump")
    source = address(**here)
    run(str(PROGRAMS / "pg_dump"), "--format=custom", f"--file={dump}", source)
    run(str(PROGRAMS / "pg_restore"), "--no-owner", "--exit-on-error", f"--dbname={copy}", dump)
    assert contents(copy) == contents(source)
    assert [state for _, state, _ in contents(copy)[-1]] == ["COMPLETED", "RUNNING", "PENDING"]

    command = (sys.executable, "-W", "ignore", "manage.py")
    run(*command, "migrate", "--check", DATABASE_URL=copy, DATABASE_POOL_SIZE="0")
    run(*command, "maintenance", "enter", "--note", "restored", DATABASE_URL=copy, DATABASE_POOL_SIZE="0")
    run(*command, "check_liveness", DATABASE_URL=copy, DATABASE_POOL_SIZE="0")
    assert [state for _, state, _ in contents(copy)[-1]] == ["COMPLETED", "RUNNING", "PENDING"]
