"""Wheel that is built once per run, and installed into separate virtual environments."""

import atexit
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import venv
from functools import cache
from pathlib import Path

from tests.support.missing import skip_without
from tests.support.processes import ROOT, eventually

SITE = Path(sysconfig.get_path("purelib"))
FOREIGN = ("CONTROLPLANE_", "DATABASE_URL", "DJANGO_", "JOBS_", "LIVENESS_", "PYTEST_", "PYTHON", "XDG_")
OF_AGENTS = ("psutil", "structlog", "urllib3")


@cache
def build() -> Path:
    """Build the wheel. Skip the test if that is impossible, or fail it if REQUIRE_ALL is set."""
    if importlib.util.find_spec("hatchling") is None:
        skip_without("hatchling is not installed")
    folder = Path(tempfile.mkdtemp(prefix="controlplane-wheel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=ROOT)
    return next(folder.glob("*.whl"))


def install(folder: Path, *, only: tuple[str, ...] = ()) -> Path:
    """Install the wheel in a new environment, with all of our dependencies or `only` some.

    Return its program folder.
    """
    venv.create(folder, symlinks=True)
    # The new environment has no pip, so our own pip installs into it.
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", "--no-compile", str(build()))
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in only:
        (site / name).symlink_to(SITE / name)
    if not only:
        (site / "dependencies.pth").write_text(f"{SITE}\n")
    return folder / "bin"


def run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "HOME": str(home), **more}


class Running:
    """Program running in the folder `work`, with all its output."""

    def __init__(self, *command: str, home: Path, **more: str) -> None:
        self.process = subprocess.Popen(
            command, cwd=home / "work", env=environment(home, **more), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.lines: list[str] = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout or ()), daemon=True)
        self.reader.start()

    def wait_for(self, pattern: str) -> None:
        eventually(
            lambda: re.search(pattern, "".join(self.lines)) or self.process.poll() is not None,
            within=240,
            why=lambda: "".join(self.lines),
        )
        assert re.search(pattern, "".join(self.lines)), "".join(self.lines)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.reader.join(10)
        assert self.process.stdout
        self.process.stdout.close()
