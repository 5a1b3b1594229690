"""Audit of the locked packages for known vulnerabilities in PyPI's advisories, as a part of `make lint`.

If the advisories cannot be reached, the audit prints the reason and does not fail.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from typing import Any

LOCK = "requirements-dev.lock"
"""Lock file of everything that is installed anywhere, including what users run."""
AUDIT = [
    sys.executable, "-m", "pip_audit", "--disable-pip", "--format", "json", "--timeout", "10",
    "--progress-spinner", "off", "--requirement",
]  # fmt: skip
PATIENCE = 180
"""Seconds after which an unresponsive server ends the audit."""


def judge(output: str, errors: str) -> tuple[list[str], str | None]:
    """Return the vulnerabilities in pip-audit's output, and the reason if some packages could not be checked."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return [], (errors.strip().splitlines() or ["pip-audit printed nothing"])[-1]
    skipped = [package["skip_reason"] for package in packages if "skip_reason" in package]
    advisories = [
        f"{package['name']} {package['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'none'}"
        for package in packages
        for hole in package.get("vulns", ())
    ]
    return advisories, f"{len(skipped)} of {len(packages)} packages: {skipped[0]}" if skipped else None


def audit() -> tuple[list[str], str | None]:
    """Return the result of `judge`. Check one package first, so that a mirror without advisories fails quickly."""
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as one:
            one.write(f"pip-audit=={version('pip-audit')}\n")
            one.flush()
            advisories, unknown = ask(one.name, "--no-deps")
        return (advisories, unknown) if unknown else ask(LOCK, "--require-hashes")
    except subprocess.TimeoutExpired:
        return [], f"no answer within {PATIENCE} s"


def ask(requirements: str, *options: str) -> tuple[list[str], str | None]:
    ran = subprocess.run([*AUDIT, requirements, *options], capture_output=True, text=True, timeout=PATIENCE)
    return judge(ran.stdout, ran.stderr)


def main() -> int:
    advisories, unknown = audit()
    for line in advisories:
        sys.stderr.write(f"A known vulnerability: {line}\n")
    if unknown:
        sys.stderr.write(f"The audit of vulnerabilities is skipped: {unknown}\n")
    return 1 if advisories else 0


if __name__ == "__main__":
    sys.exit(main())
