"""Whether a locked package has a known vulnerability, as PyPI's advisories say; part of `make lint`.

Where they cannot be reached nothing is known, which is said with its reason and is no failure.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from typing import Any

LOCK = "requirements-dev.lock"
"""Of everything that is installed anywhere: what users run is in it as well."""
AUDIT = [
    sys.executable, "-m", "pip_audit", "--disable-pip", "--format", "json", "--timeout", "10",
    "--progress-spinner", "off", "--requirement",
]  # fmt: skip
PATIENCE = 180
"""Seconds, where addresses are neither reached nor refused."""


def judge(output: str, errors: str) -> tuple[list[str], str | None]:
    """The vulnerabilities that pip-audit names, and why it could not look everywhere, if it could not."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return [], (errors.strip().splitlines() or ["pip-audit says nothing"])[-1]
    skipped = [package["skip_reason"] for package in packages if "skip_reason" in package]
    advisories = [
        f"{package['name']} {package['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'none'}"
        for package in packages
        for hole in package.get("vulns", ())
    ]
    return advisories, f"{len(skipped)} of {len(packages)} packages: {skipped[0]}" if skipped else None


def audit() -> tuple[list[str], str | None]:
    """As `judge` has it. One package is asked for first: a mirror without advisories is not asked for each."""
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
