"""Test what host projects rely on: the apps, the tasks of beat, and the signing key."""

import sys
from types import ModuleType
from uuid import uuid4

import pytest
from django.conf import settings

from controlplane import beat, site_urls
from controlplane.apps import INSTALLED
from controlplane.celery import app
from controlplane.checks import check_project
from jobs import tasks
from liveness.errors import TokenRefused
from liveness.services import tokens


def test_a_site_of_its_own_has_the_apps_that_a_project_is_given():
    assert [name for name in settings.INSTALLED_APPS if name in INSTALLED] == INSTALLED


def test_a_project_starts_what_our_own_beat_starts():
    app.finalize()
    ours = {name: entry["schedule"].run_every.total_seconds() for name, entry in app.conf.beat_schedule.items()}
    assert ours == {name: entry["schedule"] for name, entry in beat.schedule().items()}
    assert all(hasattr(tasks, name.removeprefix("jobs.tasks.")) for name in ours)


@pytest.fixture
def signing_key(settings):
    def choose(key):
        settings.LIVENESS = {"SIGNING_KEY": key}
        tokens.read_server_token.cache_clear()

    yield choose
    tokens.read_server_token.cache_clear()


def test_the_tokens_of_servers_outlive_a_change_of_the_secret_key(settings, signing_key):
    signing_key("k" * 50)
    server = uuid4()
    text = tokens.sign_server_token(server, 1, uuid4())
    settings.SECRET_KEY = "another" * 8
    signing_key("k" * 50)
    assert tokens.read_server_token(text).server == server
    signing_key("another key" * 5)
    with pytest.raises(TokenRefused):
        tokens.read_server_token(text)
    signing_key(None)
    with pytest.raises(TokenRefused):
        tokens.read_server_token(text)


def warnings():
    return [message.id for message in check_project()]


def test_settings_of_ones_own_that_extend_the_sites_need_no_witness(settings, monkeypatch):
    company = ModuleType("company_urls")
    company.urlpatterns = [*site_urls.urlpatterns]
    monkeypatch.setitem(sys.modules, "company_urls", company)
    settings.ROOT_URLCONF = "company_urls"
    assert "controlplane.W001" not in warnings(), "web processes are their own witnesses"
    settings.WSGI_APPLICATION = "mysite.wsgi.application"
    assert "controlplane.W001" in warnings()
    settings.LIVENESS = {"WITNESS_URL": "https://example.com/controlplane"}
    assert "controlplane.W001" not in warnings()
