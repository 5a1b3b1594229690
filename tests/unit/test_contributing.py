"""The guide for contributors and its tools name only things that exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.processes import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = re.findall(r"`([^`\n]+)`", GUIDE)
FORMS = ["bug.yml", "feature.yml"]


def test_each_path_in_the_guide_exists():
    paths = {name for name in NAMED if re.fullmatch(r"[\w.-]+/[\w./-]*|[\w-]+\.(toml|md|py)", name)}
    assert len(paths) > 20
    folders = [ROOT, ROOT / "controlplane", ROOT / "controlplane/agent/runners"]
    assert not [
        path for path in paths if path != "management/commands/" and not any((f / path).exists() for f in folders)
    ]


def test_each_make_target_in_the_guide_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z][a-z-]+)", GUIDE))
    assert {"install-dev", "test", "lint", "coverage"} <= named <= targets


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("jobs/api/serializers/jobs.py", ["JobRequest"]),
        ("jobs/conf.py", ["AlertsSettings"]),
        ("jobs/services/alert_channels.py", ["list_channels", "send_message", "NotSent"]),
        ("controlplane/embedded/postgres.py", ["WITHOUT_DATABASE"]),
        ("controlplane/agent/runners/policy.py", ["ACTION_TYPES", "--allow"]),
        ("controlplane/agent/runners/runner.py", ["Runner"]),
    ],
)
def test_the_names_in_the_guide_are_in_the_files_beside_them(path, names):
    text = (ROOT / path).read_text()
    assert path in GUIDE or Path(path).name in GUIDE
    assert all(name in NAMED and name in text for name in names)


def test_the_hooks_run_tools_of_the_lock():
    hooks = [
        hook
        for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
        for hook in repo["hooks"]
    ]
    lock = (ROOT / "requirements-dev.lock").read_text()
    for hook in hooks:
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/") and hook["language"] == "system"
        package = {"lint-imports": "import-linter"}.get(Path(program).name, Path(program).name)
        assert package == "python" or f"\n{package}==" in lock, hook["id"]
    assert "pre-commit==" in lock


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", [".github/workflows/ci.yml"]),
        ("vendor.github-issue-forms", [f".github/ISSUE_TEMPLATE/{form}" for form in FORMS]),
    ],
)
def test_the_files_for_the_forge_are_valid(schema, files):
    program = Path(sys.executable).parent / "check-jsonschema"
    done = subprocess.run([program, "--builtin-schema", schema, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_public_workflow_runs_the_same_as_the_own_one():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert ".ci/run" in [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
