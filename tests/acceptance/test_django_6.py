"""The task backend on `django.tasks`, which Django has since 6.0.

The suite that runs elsewhere with `django-tasks` on Django 5.2 runs again here. Its environment has the locked
packages, except for Django 6.0, and Python 3.12.
"""

import os
import re
import shutil
import subprocess

import pytest

from tests.support import wheel
from tests.support.missing import skip_without
from tests.support.processes import ROOT, beside, drop, server
from tests.support.pythons import make_environment

# Exhaustive, because it needs another Python than `make test`, and packages that are not locked.
pytestmark = [pytest.mark.acceptance, pytest.mark.exhaustive, pytest.mark.timeout(600)]
DJANGO = "django>=6.0,<6.1"
SUITE = "tests/integration/jobs/test_django_tasks.py"
PLUGINS = ("pytest", "pytest-django", "pytest-randomly", "pytest-timeout")
OF_THIS_RUN = ("DATABASE_URL", "DJANGO_", "PYTEST_", "PYTHON")


def pins(lock: str) -> str:
    """Return the locked packages as pip constraints: without Django, hashes and extras."""
    names = re.findall(r"^(?!django==)[a-z].*?(?= \\$)", (ROOT / lock).read_text(), re.MULTILINE)
    return "\n".join(re.sub(r"\[.*\]", "", name) for name in names)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    folder = tmp_path_factory.mktemp("django-6")
    for lock in ("requirements.lock", "requirements-dev.lock"):
        (folder / lock).write_text(pins(lock))
    which = ["--requirement", "requirements.lock", "--constraint", "requirements-dev.lock", DJANGO, *PLUGINS]
    try:
        return make_environment(folder / "environment", *which)
    except LookupError as error:
        skip_without(f"Django 6.0 cannot be had: {error}")


def test_the_suite_of_the_backend_passes_with_django_6(python):
    name = f"django6_{os.getpid()}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_THIS_RUN)}
    server(f"create database {name}")
    try:
        done = subprocess.run(
            [python, "-m", "pytest", "-p", "no:cacheprovider", "--quiet", SUITE],
            cwd=ROOT, env={**kept, "DATABASE_URL": beside(name)}, capture_output=True, text=True,
        )  # fmt: skip
    finally:
        drop(beside(name))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("has", [[], ["django.contrib.postgres", "django_htmx"]], ids=["none of them", "two of them"])
def test_a_new_project_with_the_apps_as_the_guide_adds_them_has_no_errors(python, tmp_path, has):
    shutil.unpack_archive(wheel.build(), tmp_path, "zip")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_THIS_RUN)}

    def run(*words):
        done = subprocess.run([python, *words], cwd=tmp_path, env=kept, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    run("-m", "django", "startproject", "mysite", ".")
    guide = (ROOT / "docs/how-to/add-to-a-django-project.md").read_text()
    settings, urls = (
        re.search(rf"```python\n# {name}.*?\n(.*?)```", guide, re.DOTALL)[1] for name in ("settings", "urls")
    )
    database = 'DATABASES["default"] = {"ENGINE": "django.db.backends.postgresql", "NAME": "not asked"}'
    with (tmp_path / "mysite/settings.py").open("a") as file:
        file.write(f"INSTALLED_APPS += {has}\n{database}\n{settings}")
    with (tmp_path / "mysite/urls.py").open("a") as file:
        file.write(f"from django.urls import include\n{urls}")
    run("manage.py", "check")
