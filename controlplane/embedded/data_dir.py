"""Where the data directory is, and which commands may make one."""

import os
from collections.abc import Sequence
from pathlib import Path

from controlplane.agent import environment
from controlplane.embedded import private_files

VARIABLE = "CONTROLPLANE_DATA_DIR"
OPTION = "--data-dir"
MAKERS = ("standalone", "migrate")
"""Any other command would begin a second installation unseen: a database of its own, with a key of its own."""


def find_data_dir() -> Path:
    """CONTROLPLANE_DATA_DIR; else `var` of a clone of the sources, wherever it is used from, or the user's own."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    if sources := environment.sources():
        return Path(sources[0], "var")
    if (of_user := Path(os.environ.get("XDG_DATA_HOME", ""))).is_absolute():
        return of_user / "controlplane"
    return Path(os.path.expanduser("~/.local/share/controlplane")).absolute()


def take_option(argv: Sequence[str]) -> list[str]:
    """A command line without `--data-dir`, which every command has and which goes to the environment: the settings
    are read before Django reads options."""
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
    """The data directory for a command that needs what is in it. Raises SystemExit with what to do."""
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
        f"Choose one that can be written with {OPTION} or {VARIABLE}, or set DATABASE_URL and SECRET_KEY."
    )
