"""BEHIND_TLS=1: a proxy in front speaks TLS, and nothing but the probes is answered without."""

import json
import os
import subprocess
import sys

import pytest

from controlplane import readme

SCRIPT = """
import json, os, django
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
from django.conf import settings
django.setup()
from django.core.management import call_command
from django.test import Client
call_command("check", deploy=True, fail_level="WARNING", databases=[])
def answer(path, **headers):
    said = Client(headers={"Host": "control.example"}).get(path, headers=headers)
    return said.status_code, dict(said.headers), [cookie.OutputString() for cookie in said.cookies.values()]
tls = answer("/admin/login/", **{"X-Forwarded-Proto": "https"})
print(json.dumps([answer("/livez"), answer("/admin/login/"), answer("/api/v1/servers"), tls]))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What is answered in a process that is behind TLS."""
    env = {
        **os.environ,
        "BEHIND_TLS": "1",
        "ALLOWED_HOSTS": "control.example",
        "DATABASE_URL": "postgresql://nobody@localhost:1/none",
        "CONTROLPLANE_DATA_DIR": str(tmp_path_factory.mktemp("tls")),
    }
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(command, env=env, cwd=readme.README.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_probes_are_answered_and_everything_else_is_sent_to_https(answers):
    livez, page, call, _ = answers
    assert livez[0] == 200
    for status, headers, _ in (page, call):
        assert status == 301
        assert headers["Location"].startswith("https://control.example/")


def test_cookies_are_secure_and_bound_to_the_host_and_the_browser_is_told_to_stay(answers):
    status, headers, cookies = answers[3]
    assert status == 200
    assert headers["Strict-Transport-Security"].startswith("max-age=31536000")
    assert cookies
    for cookie in cookies:
        assert cookie.startswith("__Host-") and "Secure" in cookie and "Path=/" in cookie and "Domain" not in cookie
