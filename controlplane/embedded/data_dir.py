"""Location of the data directory, and the commands that may create it."""

import os
from collections.abc import Sequence
from pathlib import Path

from controlplane.agent.processes import environment
from controlplane.embedded import private_files

VARIABLE = "CONTROLPLANE_DATA_DIR"
OPTION = "--data-dir"
MAKERS = ("standalone", "migrate")
"""Commands that may create the data directory. Other commands would start a second installation unnoticed, with its
own database and key."""


def find_data_dir() -> Path:
    """Return CONTROLPLANE_DATA_DIR. Without it, return `var` in a clone, otherwise the directory in the user's home."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    if sources := environment.sources():
        return Path(sources[0], "var")
    if (of_user := Path(os.environ.get("XDG_DATA_HOME", ""))).is_absolute():
        return of_user / "controlplane"
    return Path(os.path.expanduser("~/.local/share/controlplane")).absolute()


def take_option(argv: Sequence[str]) -> list[str]:
    """Return the command line without `--data-dir`, and set it in the environment.

    Every command has this option. It is taken here, because the settings are read before Django parses options.
    """
    words, kept = iter(argv), []
    for word in words:
        if word == "--":
            kept.append(word)
            break
        if word == OPTION:
            set_data_dir(next(words, ""))
        elif word.startswith(f"{OPTION}="):
            set_data_dir(word.partition("=")[2])
        else:
            kept.append(word)
    return [*kept, *words]


def set_data_dir(chosen: str) -> None:
    if not chosen:
        raise SystemExit(f"{OPTION} needs a directory: {OPTION} DIR.")
    os.environ[VARIABLE] = str(Path(chosen).absolute())


def prepare_for(command: str) -> Path:
    """Return the data directory for a command that needs it. Raise SystemExit with what to do."""
    data_dir = find_data_dir()
    if command in MAKERS:
        try:
            private_files.prepare(data_dir)
        except OSError as error:
            raise SystemExit(refusal(data_dir, error)) from None
    return data_dir


def refusal(data_dir: Path, error: OSError) -> str:
    return (
        f"The data directory {data_dir} cannot be used: {error.strerror}. "
        f"Choose a writable one with {OPTION} or {VARIABLE}, or set DATABASE_URL and SECRET_KEY."
    )
