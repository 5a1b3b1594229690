"""Audit of known vulnerabilities: some findings fail `make lint`, others are only reported as unknown."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
judge = runpy.run_path(str(ROOT / ".ci/audit.py"))["judge"]

WELL = {"name": "django", "version": "5.2.1", "vulns": []}
HOLE = {"id": "CVE-2030-1", "fix_versions": ["2.0"], "aliases": [], "description": ""}
BAD = {"name": "urllib3", "version": "1.0", "vulns": [HOLE]}
UNKNOWN = {"name": "kombu", "skip_reason": "Dependency not found on PyPI and could not be audited: kombu (5.7.0)"}


@pytest.mark.parametrize(
    ("packages", "vulnerabilities", "unknown"),
    [
        ([WELL], [], None),
        ([WELL, BAD], ["urllib3 1.0: CVE-2030-1, fixed in 2.0"], None),
        ([WELL, UNKNOWN], [], f"1 of 2 packages: {UNKNOWN['skip_reason']}"),
        ([BAD, UNKNOWN], ["urllib3 1.0: CVE-2030-1, fixed in 2.0"], f"1 of 2 packages: {UNKNOWN['skip_reason']}"),
    ],
)
def test_a_vulnerability_fails_and_packages_that_were_not_checked_are_named(packages, vulnerabilities, unknown):
    assert judge(json.dumps({"dependencies": packages, "fixes": []}), "") == (vulnerabilities, unknown)


@pytest.mark.parametrize("output", ["", "no JSON", "[]", "{}"])
def test_the_reason_is_printed_if_the_advisories_cannot_be_reached(output):
    assert judge(output, "WARNING: trying\nERROR: Could not connect to PyPI\n") == (
        [],
        "ERROR: Could not connect to PyPI",
    )
    assert judge(output, "") == ([], "pip-audit printed nothing")


def test_it_is_part_of_make_lint_and_locked():
    assert "$(BIN)/python .ci/audit.py" in (ROOT / "Makefile").read_text()
    assert "\npip-audit==" in (ROOT / "requirements-dev.lock").read_text()
