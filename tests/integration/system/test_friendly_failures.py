"""Test errors of installations: one sentence with the solution, and never a traceback."""

import os
import subprocess
import sys

import pytest

from controlplane.embedded import system_user
from tests.support.processes import ROOT, beside, drop, server


def fail(*words: str, **environment: str) -> str:
    """Return the only line that a command prints."""
    done = subprocess.run(
        [sys.executable, "manage.py", *words], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "SECRET_KEY": "of this installation" * 2, "DATABASE_POOL_SIZE": "8", **environment},
    )  # fmt: skip
    assert done.returncode != 0
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("usage:") and not line.startswith(" ")]
    return line


@pytest.mark.parametrize("command", [["migrate"], ["create_token", "--role", "client", "me"], ["standalone"]])
def test_a_database_that_is_not_there(command):
    line = fail(*command, DATABASE_URL="postgresql://nobody:secret@127.0.0.1:1/nothing")
    assert line.startswith("The database cannot be reached: ") and "DATABASE_URL" in line
    assert "secret" not in line


def test_a_host_that_no_one_knows():
    assert "cannot be reached" in fail("migrate", DATABASE_URL="postgresql://no-such-host.invalid/nothing")


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "sqlite:///db.sqlite3", "oracle://host/db"])
def test_another_kind_of_database(url):
    line = fail("migrate", DATABASE_URL=url)
    assert "needs PostgreSQL 15 or later" in line and "DATABASE_URL=postgresql://user:password@host" in line
    assert "secret" not in line


def test_no_url_at_all():
    assert "DATABASE_URL=postgresql://user:password@host" in fail("migrate", DATABASE_URL="localhost:5432")


def test_a_database_that_was_never_migrated():
    name = f"bare_{os.getpid()}"
    server(f"create database {name}")
    try:
        line = fail("create_token", "--role", "client", "me", DATABASE_URL=beside(name))
        assert line.startswith("The database lacks ") and "run `migrate` first" in line
    finally:
        drop(beside(name))


@pytest.mark.parametrize("port", ["99999", "0", "http", "-1"])
def test_a_port_that_is_none(port):
    line = fail("standalone", f"--port={port}")
    assert line.endswith(f"argument --port: {port!r} is not a whole number from 1 to 65535")


def test_users_are_made_although_the_path_lacks_the_programs_of_administrators(monkeypatch):
    def look_up(name):
        raise KeyError(name)

    def find(name, path):
        return f"/usr/sbin/{name}" if "/usr/sbin" in path else None

    def run(command, **_):
        ran.append(command)
        return subprocess.CompletedProcess([], 1, "", "")

    ran = []
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(system_user.pwd, "getpwnam", look_up)
    monkeypatch.setattr(system_user.shutil, "which", find)
    monkeypatch.setattr(system_user.subprocess, "run", run)
    with pytest.raises(LookupError):
        system_user.find_or_make("controlplane-test")
    assert ran[0][0] == "/usr/sbin/useradd"


def test_a_system_without_useradd_gets_a_clear_error(monkeypatch):
    monkeypatch.setattr(system_user.shutil, "which", lambda name, path: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LookupError, match="the program useradd is not installed"):
        system_user.find_or_make("controlplane-test")
