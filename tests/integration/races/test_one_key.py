"""A database belongs to one signing key. A control plane with another key refuses to use it."""

import os
import subprocess
import sys
import threading

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.test import override_settings

from liveness.models import Instance, Server
from liveness.services import presence, signing_key
from liveness.states import ServerType
from tests.support.processes import ROOT, database, drop

FIRST, SECOND, THIRD = (f"{number} key of this installation, long enough" for number in ("first", "second", "third"))


def start(key, *fallbacks):
    with override_settings(SECRET_KEY=key, SECRET_KEY_FALLBACKS=list(fallbacks)):
        signing_key.refuse_another_key()


def test_the_first_key_stays_and_another_one_is_refused(db):
    start(FIRST)
    start(FIRST)
    with pytest.raises(ImproperlyConfigured) as refused:
        start(SECOND)
    assert FIRST not in str(refused.value) and SECOND not in str(refused.value)
    assert "another control plane" in str(refused.value) and "SECRET_KEY_FALLBACKS" in str(refused.value)
    start(FIRST)


def test_a_key_is_replaced_by_one_that_knows_it_as_an_earlier_key(db):
    start(FIRST)
    start(FIRST, SECOND)
    start(SECOND, FIRST)
    start(SECOND)
    with pytest.raises(ImproperlyConfigured):
        start(FIRST)
    with pytest.raises(ImproperlyConfigured):
        start(THIRD, FIRST)


def test_of_two_that_start_at_once_with_keys_of_their_own_one_is_refused(transactional_db, threads):
    barrier = threading.Barrier(2)
    Instance.objects.update(key_fingerprint=None)

    def begin(fingerprint):
        barrier.wait(10)
        try:
            signing_key.compare([fingerprint])
        except signing_key.AnotherKey:
            return False
        return True

    results = [threads(begin, fingerprint) for fingerprint in ("a" * 64, "b" * 64)]
    assert sorted(result.result(30) for result in results) == [False, True]


def test_a_lost_key_is_replaced_by_a_command(db, capsys):
    start(FIRST)
    with override_settings(SECRET_KEY=SECOND):
        call_command("replace_signing_key")
        signing_key.refuse_another_key()
    assert "now belongs to the key" in capsys.readouterr().out
    with pytest.raises(ImproperlyConfigured):
        start(FIRST)


def test_a_process_with_another_key_never_becomes_a_server(db):
    start(FIRST)
    with override_settings(SECRET_KEY=SECOND), pytest.raises(signing_key.AnotherKey):
        presence.Presence(ServerType.EXECUTOR, "another").beat()
    assert not Server.objects.exists()


@pytest.fixture
def owned():
    """Make a database that belongs to a control plane with the first key."""
    url = database()
    with override_settings(SECRET_KEY=FIRST, SECRET_KEY_FALLBACKS=[]), psycopg.connect(url) as connection:
        fingerprint = signing_key.fingerprints()[0]
        connection.execute("update liveness_instance set key_fingerprint = %s", [fingerprint])
    yield url
    drop(url)


GRANIAN = "-m granian --interface rsgi --port 0 --log-level warning controlplane.web:application"
CELERY = "-W ignore -m celery -A controlplane.celery"


def run(url, key, *command):
    environment = {**os.environ, "DATABASE_URL": url, "SECRET_KEY": key}
    environment.pop("DJANGO_SETTINGS_MODULE")  # each program sets this variable itself
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(GRANIAN, id="web"),
        pytest.param(f"{CELERY} worker --pool solo", id="executor", marks=pytest.mark.exhaustive),
        pytest.param(f"{CELERY} beat", id="scheduler", marks=pytest.mark.exhaustive),
        pytest.param("manage.py standalone --workers 0 --port 1", id="standalone"),
    ],
)
def test_no_process_of_a_second_control_plane_starts(owned, command, tmp_path, monkeypatch):
    monkeypatch.setenv("CONTROLPLANE_DATA_DIR", str(tmp_path))
    (tmp_path / "broker").mkdir()
    done = run(owned, SECOND, *command.split())
    assert done.returncode != 0
    assert "belongs to another control plane" in done.stdout + done.stderr
