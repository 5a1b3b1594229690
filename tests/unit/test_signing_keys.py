"""Weak keys sign nothing: no process of a site starts with one, and a project gets an error."""

import os
import subprocess
import sys
from itertools import cycle

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane.core.signing_keys import explain_weak_key, split_keys
from liveness import checks
from liveness.services import tokens
from tests.support.processes import ROOT, free_port

GOOD = "0123456789abcdef" * 2
FROM_EXAMPLES = ["changeme" * 5, "please-change-this-before-you-deploy-it", "REPLACE_ME" * 4, "your-secret-" * 4]


def test_a_key_at_the_limit_is_good_and_one_just_below_is_weak():
    assert explain_weak_key("SECRET_KEY", GOOD) is None
    assert explain_weak_key("SECRET_KEY", GOOD.encode()) is None
    weakness = explain_weak_key("SECRET_KEY", GOOD[1:])
    assert weakness and "has 31 characters but needs at least 32" in weakness and "secrets.token_hex(32)" in weakness
    assert GOOD[1:] not in weakness


@pytest.mark.parametrize("key", FROM_EXAMPLES)
def test_a_long_key_that_was_copied_from_an_example_is_weak(key):
    assert "was copied from an example" in (explain_weak_key("SECRET_KEY", key) or "")


def test_keys_are_separated_by_commas_or_white_space():
    assert split_keys(f" {GOOD},x\n y ") == [GOOD, "x", "y"]


WEAK_SETTINGS = [
    ({"SECRET_KEY": "changeme"}, "SECRET_KEY has 8 characters"),
    ({"SECRET_KEY": GOOD, "SECRET_KEY_FALLBACKS": f"{GOOD}x short"}, "SECRET_KEY_FALLBACKS has 5 characters"),
    ({"SECRET_KEY": GOOD, "LIVENESS_SIGNING_KEY": "short"}, 'LIVENESS["SIGNING_KEY"] has 5 characters'),
    (
        {"SECRET_KEY": GOOD, "LIVENESS_SIGNING_KEY": GOOD, "LIVENESS_SIGNING_KEY_FALLBACKS": "s"},
        'LIVENESS["SIGNING_KEY_FALLBACKS"] has 1 characters',
    ),
]
STARTS = {
    "web": ["-m", "granian", "--interface=rsgi", "--port=0", "controlplane.web:application"],
    "wsgi": ["-c", "import controlplane.wsgi"],
    "executor": ["-m", "celery", "-A", "controlplane.celery", "worker", "--pool=solo"],
    "beat": ["-m", "celery", "-A", "controlplane.celery", "beat"],
    "a command": ["manage.py", "create_token", "--role", "worker", "me"],
    "standalone": ["manage.py", "standalone", "--workers=0", f"--port={free_port()}"],
}


# All programs read the settings in the same way. So each program gets one weak key.
STARTS_WITH = [(start, *weak) for start, weak in zip(STARTS, cycle(WEAK_SETTINGS), strict=False)]


@pytest.mark.parametrize(("start", "environment", "said"), STARTS_WITH)
def test_no_process_starts_with_a_weak_key(start, environment, said, tmp_path):
    done = subprocess.run(
        [sys.executable, *STARTS[start]], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={**os.environ, "CONTROLPLANE_DATA_DIR": str(tmp_path), **environment},
    )  # fmt: skip
    assert done.returncode != 0
    assert said in done.stdout + done.stderr and "Make one with: python -c" in done.stdout + done.stderr


@pytest.fixture
def keys(settings):
    """Set the keys of a project."""

    def choose(secret_key=GOOD, fallbacks=(), **liveness):
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS, settings.LIVENESS = secret_key, list(fallbacks), liveness
        tokens.read_server_token.cache_clear()

    yield choose
    tokens.read_server_token.cache_clear()


def errors():
    return [(message.id, message.msg.partition(" ")[0]) for message in checks.check_settings() if message.is_serious()]


def test_a_project_gets_an_error_for_each_weak_key_that_signs_server_tokens(keys):
    keys()
    assert errors() == []
    keys("short", ["older"])
    assert errors() == [("liveness.E010", "SECRET_KEY"), ("liveness.E010", "SECRET_KEY_FALLBACKS")]
    keys(SIGNING_KEY="short", SIGNING_KEY_FALLBACKS=["older", GOOD])
    assert errors() == [
        ("liveness.E010", 'LIVENESS["SIGNING_KEY"]'), ("liveness.E010", 'LIVENESS["SIGNING_KEY_FALLBACKS"]'),
    ]  # fmt: skip


def test_a_weak_key_of_a_project_is_its_own_affair_where_it_signs_no_server_token(keys):
    keys("short", SIGNING_KEY=GOOD)
    assert errors() == []


def test_a_server_that_runs_no_checks_signs_and_accepts_nothing_with_a_weak_key(keys):
    keys("short")
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY has 5 characters"):
        tokens.sign_server_token(tokens.UUID(int=1), 1, tokens.UUID(int=2))
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY has 5 characters"):
        tokens.read_server_token("cps_1.1.1:x")
