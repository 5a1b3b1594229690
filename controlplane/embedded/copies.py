"""A copy of a data directory whose database lies outside of it names the database of the first. Its locks are its own:
what used the copy would change that database, and stop its server on leaving, while the first is at work."""

import os
from pathlib import Path

from controlplane.embedded.postgres_server import database_home, location_note, user_note


def refuse(data_dir: Path) -> None:
    """Raises SystemExit with what to do when the database is that of another directory, which is still there."""
    home = database_home(data_dir)
    first = find_user(data_dir, home)
    if first is None or first == data_dir.resolve() or not location_note(first).exists():
        return
    if database_home(first) != home or first.samefile(data_dir):
        return
    raise SystemExit(
        f"{data_dir} is a copy of {first}, and the database in {home} is that one's. For a database of its own stop "
        f"that one, copy the database (`cp -a {home} {home}-copy`), and write where the copy is into "
        f"{location_note(data_dir)}."
    )


def remember(data_dir: Path) -> None:
    """Note whose the database is. One at a time."""
    home, here = database_home(data_dir), data_dir.resolve()
    if not location_note(data_dir).exists() or find_user(data_dir, home) == here:
        return
    note = user_note(home)
    note.unlink(missing_ok=True)
    with os.fdopen(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{here}\n")


def find_user(data_dir: Path, home: Path) -> Path | None:
    note = user_note(home)
    return Path(note.read_text().strip()) if location_note(data_dir).exists() and note.exists() else None
