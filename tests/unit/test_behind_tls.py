"""BEHIND_TLS=1: a proxy in front speaks TLS, and only the probes are answered without TLS."""

import json
import os
import runpy
import secrets
import subprocess
import sys

import pytest
import structlog
import yaml

from controlplane import readme, settings

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


def run_behind_tls(data_dir, script=SCRIPT, **variables):
    env = {
        **os.environ,
        "BEHIND_TLS": "1",
        "ALLOWED_HOSTS": "control.example",
        "DATABASE_URL": "postgresql://nobody@localhost:1/none",
        "CONTROLPLANE_DATA_DIR": str(data_dir),
        **variables,
    }
    command = [sys.executable, "-W", "ignore", "-c", script]
    return subprocess.run(command, env=env, cwd=readme.README.parent, capture_output=True, text=True)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return the answers of a process behind TLS in which `check --deploy` finds nothing."""
    done = run_behind_tls(tmp_path_factory.mktemp("tls"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_probes_are_answered_and_everything_else_is_sent_to_https(answers):
    livez, page, call, _ = answers
    assert livez[0] == 200
    for status, headers, _ in (page, call):
        assert status == 301
        assert headers["Location"].startswith("https://control.example/")


def test_cookies_are_secure_and_bound_to_the_host_and_hsts_is_sent(answers):
    status, headers, cookies = answers[3]
    assert status == 200
    assert headers["Strict-Transport-Security"].startswith("max-age=31536000")
    assert cookies
    for cookie in cookies:
        assert cookie.startswith("__Host-") and "Secure" in cookie and "Path=/" in cookie and "Domain" not in cookie


def test_the_time_that_browsers_stay_with_tls_can_be_set(tmp_path, monkeypatch):
    monkeypatch.setenv("BEHIND_TLS", "1")
    monkeypatch.setenv("ALLOWED_HOSTS", "control.example")
    monkeypatch.setenv("CONTROLPLANE_DATA_DIR", str(tmp_path))

    def read(seconds):
        monkeypatch.setenv("HSTS_SECONDS", seconds)
        before = structlog.get_config()
        try:
            return runpy.run_path(settings.__file__)["SECURE_HSTS_SECONDS"]
        finally:
            structlog.configure(**before)  # otherwise no test could capture lines of loggers in use

    assert [read("3600"), read("0")] == [3600, 0]
    with pytest.raises(SystemExit) as refused:
        read("1h")
    explanation = "HSTS_SECONDS: '1h' is not a whole number of seconds. It sets how long browsers insist on TLS."
    assert str(refused.value) == explanation


CHECK = """
import os, django
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
django.setup()
from django.core.management import call_command
call_command("check", deploy=True, fail_level="WARNING", databases=[])
"""


def test_check_deploy_finds_nothing_in_what_deploy_has_for_systemd_and_kubernetes(tmp_path):
    deploy = readme.README.parent / "deploy"
    lines = (deploy / "systemd/environment.example").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    pod = yaml.safe_load((deploy / "kubernetes/base/config.yaml").read_text().partition("---")[0])["data"]
    for variables in (unit, {**unit, **pod}):
        done = run_behind_tls(tmp_path, CHECK, **{**variables, "SECRET_KEY": secrets.token_hex(32)})
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
