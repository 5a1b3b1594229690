"""The wheel, built once in a run, and installed into virtual environments of its own."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from functools import cache
from pathlib import Path

import pytest

from tests.support.processes import ROOT

SITE = Path(sysconfig.get_path("purelib"))
OF_AGENTS = ("psutil", "structlog", "urllib3")


@cache
def build() -> Path:
    """The wheel of these sources. Skips the test, or fails it where everything is required."""
    if importlib.util.find_spec("hatchling") is None:
        missing = "hatchling is not installed"
        if os.environ.get("REQUIRE_ALL"):
            pytest.fail(missing)
        pytest.skip(missing)
    folder = Path(tempfile.mkdtemp(prefix="controlplane-wheel-"))
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=ROOT)
    return next(folder.glob("*.whl"))


def install(folder: Path, *, only: tuple[str, ...] = ()) -> Path:
    """The programs of a fresh environment with the wheel; of our own packages it has all, or `only` some."""
    venv.create(folder, symlinks=True)
    # Without what pip needs and nobody else: a Python that says where to install, and a wheel.
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", "--no-compile", str(build()))
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in only:
        (site / name).symlink_to(SITE / name)
    if not only:
        (site / "dependencies.pth").write_text(f"{SITE}\n")
    return folder / "bin"


def run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)
