"""Detect a copied data directory whose database is elsewhere, so that both directories name the same database.

The copy has its own locks. A process that used the copy would change the database of the first directory while that is
in use. At its end it would stop the server.
"""

import os
from pathlib import Path

from controlplane.embedded.postgres_server import database_home, location_note, user_note


def refuse(data_dir: Path) -> None:
    """Raise SystemExit with what to do if the database belongs to another directory that still exists."""
    home = database_home(data_dir)
    first = find_user(data_dir, home)
    if first is None or first == data_dir.resolve() or not location_note(first).exists():
        return
    if database_home(first) != home or first.samefile(data_dir):
        return
    raise SystemExit(
        f"{data_dir} is a copy of {first}, and the database in {home} belongs to {first}. To give the copy its own "
        f"database, stop the control plane of {first}, copy the database (`cp -a {home} {home}-copy`), and write the "
        f"copy's path into {location_note(data_dir)}."
    )


def remember(data_dir: Path) -> None:
    """Record which data directory the database belongs to. The caller must hold the lock."""
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
