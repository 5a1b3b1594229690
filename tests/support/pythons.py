"""Other Pythons of this machine, and separate environments for packages that are not locked."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CHECK = "import sys, venv; sys.exit(not (3, 12) <= sys.version_info < (3, 15))"


def _is_fit(python: str) -> bool:
    return subprocess.run([python, "-c", CHECK], capture_output=True).returncode == 0


def _pythons() -> Iterator[str]:
    """Yield the paths where Pythons may be, the running one first."""
    yield sys.executable
    names = [f"python3.{minor}" for minor in (14, 13, 12)]
    yield from filter(None, map(shutil.which, [*names, "python3"]))
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    yield from map(str, sorted(installed.glob("3.*/bin/python3"), reverse=True))


def make_environment(folder: Path, *packages: str) -> str:
    """Create an environment (Python 3.12 to 3.14) in `folder`, install `packages` with pip, and return its Python.

    Raise LookupError if there is no such Python, or the packages are not available.
    """
    if (python := next(filter(_is_fit, _pythons()), None)) is None:
        raise LookupError("there is no Python from 3.12 on")
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    made = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", made, "install", "--quiet", "--no-compile", "--no-input"]
    done = subprocess.run([*pip, *packages], cwd=folder.parent, capture_output=True, text=True)
    if done.returncode:
        raise LookupError(done.stderr[-1000:])
    return made
