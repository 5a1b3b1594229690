"""The environment variables of sign-in through OpenID Connect."""

import os
import re
import subprocess
import sys

import pytest

from controlplane.openid_settings import read_environment
from tests.support.processes import ROOT

WHOLE = {"OIDC_ISSUER": "https://id.example", "OIDC_CLIENT_ID": "plane", "OIDC_CLIENT_SECRET": "secret"}


def test_without_variables_nothing_is_configured():
    assert read_environment({"PATH": "/bin", "OIDC_ISSUER": " "}) == {}


def test_three_variables_are_enough():
    read = read_environment(WHOLE)
    assert (read["OIDC_ISSUER"], read["OIDC_RP_CLIENT_ID"]) == ("https://id.example", "plane")
    assert (read["OIDC_GROUPS"], read["OIDC_GROUPS_CLAIM"]) == (None, "groups")


def test_a_group_of_the_provider_may_stand_for_several():
    read = read_environment({**WHOLE, "OIDC_GROUPS": "ops=Operators, ops = Control plane all namespaces,cn=a=Viewers"})
    assert read["OIDC_GROUPS"] == {"ops": ["Operators", "Control plane all namespaces"], "cn=a": ["Viewers"]}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"OIDC_ISSUER": "https://id.example"}, "OIDC_ISSUER is set, but not OIDC_CLIENT_ID and OIDC_CLIENT_SECRET"),
        ({**WHOLE, "OIDC_CLIENT_SECRET": ""}, "OIDC_ISSUER and OIDC_CLIENT_ID are set, but not OIDC_CLIENT_SECRET"),
        ({"OIDC_GROUPS": "a=b"}, "OIDC_GROUPS is set, but not OIDC_ISSUER"),
        ({**WHOLE, "OIDC_ISSUER": "id.example"}, "'id.example' but must begin with https://"),
        ({**WHOLE, "OIDC_ISSUER": "http://id.example"}, "must begin with https://"),
        ({**WHOLE, "OIDC_GROUPS": "ops"}, "OIDC_GROUPS has 'ops'"),
        ({**WHOLE, "OIDC_GROUPS": "ops="}, "OIDC_GROUPS has 'ops='"),
        ({**WHOLE, "OIDC_GROUPS": ","}, "OIDC_GROUPS names no group"),
    ],
)
def test_a_half_configuration_is_an_error_that_names_the_variables(environment, message):
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        read_environment(environment)
    assert "secret" not in str(raised.value)


def run(code, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OIDC_")}
    whole = {**kept, "DJANGO_SETTINGS_MODULE": "controlplane.settings", **environment}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=whole, capture_output=True, text=True)


def test_the_variables_switch_on_the_addresses_and_the_backend():
    code = (
        "import django; django.setup(); from django.conf import settings; from django.urls import resolve\n"
        "print(settings.AUTHENTICATION_BACKENDS[0], resolve('/oidc/callback/').url_name)\n"
        "print(resolve('/admin/login/').route)"
    )
    done = run(code, **WHOLE)
    assert done.stdout.split() == [
        "controlplane.console.openid.OpenIdUsers", "oidc_authentication_callback", "admin/login/",
    ], done.stderr  # fmt: skip


@pytest.mark.parametrize(
    ("prelude", "environment", "message"),
    [
        ("", {"OIDC_ISSUER": "https://id.example"}, "Set OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET"),
        ("import sys; sys.modules['mozilla_django_oidc'] = None\n", WHOLE, "pip install 'controlplane[oidc]'"),
    ],
    ids=["half", "not installed"],
)
def test_a_process_that_cannot_sign_in_ends_with_one_sentence(prelude, environment, message):
    done = run(f"{prelude}import controlplane.settings", **environment)
    assert done.returncode == 1 and message in done.stderr and len(done.stderr.splitlines()) == 1
