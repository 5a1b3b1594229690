"""Processes of the control plane import only what they need, and refuse wrong settings."""

import subprocess
import sys

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.checks import check_admin_app
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver

from controlplane.startup import refuse_wrong_settings

COSTLY = ["celery", "rest_framework.serializers", "drf_spectacular.openapi", "controlplane.console.page", "urllib3"]
START = f"""
import sys
import django
from controlplane.startup import refuse_wrong_settings

django.setup()
refuse_wrong_settings()
print([name for name in {COSTLY} if name in sys.modules])
"""


def test_starting_django_imports_no_pages_no_api_and_no_celery():
    started = subprocess.run([sys.executable, "-W", "ignore", "-c", START], capture_output=True, text=True, check=False)
    assert (started.stdout, started.stderr) == ("[]\n", "")


def test_a_process_names_all_wrong_settings(settings):
    settings.LIVENESS, settings.JOBS = {"INTERVAL": 0}, {"SWEEP_INTERVAL": -1}
    settings.USE_TZ = False
    with pytest.raises(ImproperlyConfigured, match=r"USE_TZ") as refused:
        refuse_wrong_settings()
    assert 'LIVENESS["INTERVAL"]' in str(refused.value)
    assert 'JOBS["SWEEP_INTERVAL"]' in str(refused.value)


def test_the_urls_register_admins_that_pass_the_checks_of_django():
    assert get_resolver().url_patterns
    assert check_admin_app(app_configs=None) == []


@pytest.mark.parametrize(("urls", "loads"), [("controlplane.site_urls", []), ("mysite.urls", ["admins"])])
def test_settings_that_extend_ours_with_their_own_urls_load_the_admins(urls, loads, settings, monkeypatch):
    loaded = []
    monkeypatch.setattr(admin, "autodiscover", lambda: loaded.append("admins"))
    settings.ROOT_URLCONF = urls
    apps.get_app_config("console").ready()
    assert loaded == loads
