"""Replacements of docker and kubectl for tests."""

import shlex
import sys
from pathlib import Path


def install_replacement(name: str, folder: Path) -> Path:
    """Make a program in `folder` that runs the replacement, and return its path.

    It is started with the Python of the tests, because `python3` may be a slow wrapper, and without site packages.
    """
    program = folder / name
    source = Path(__file__).with_name(f"{name}.py")
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-SE", str(source)])} "$@"\n')
    program.chmod(0o755)
    return program
