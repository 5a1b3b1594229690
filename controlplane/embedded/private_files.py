"""The data directory and what is in it are their user's alone."""

import os
import stat
from pathlib import Path

SHARED = stat.S_IWOTH | stat.S_ISVTX
OURS = ("admin_password", "secret_key", "postgres", "standalone.lock", "static", "broker", "tokens", "agents")


def prepare(data_dir: Path) -> None:
    """Make the directory, closed to others; close one of an earlier time, unless it holds more than what is ours.

    Where root has a database in it, which belongs to another user, that user may go through. Raises OSError.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        there = data_dir.stat()
        if there.st_uid != os.geteuid() or there.st_mode & SHARED or not there.st_mode & 0o066:
            return
        paths = list(data_dir.iterdir())
        if all(path.name.startswith(OURS) for path in paths):
            is_gone_through = any(path.lstat().st_uid != there.st_uid for path in paths)
            data_dir.chmod(0o711 if is_gone_through else 0o700)


def open_lock(path: Path) -> int:
    """A file descriptor to lock. Nobody else may open the file, for whoever can may hold it. Raises OSError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if (there := os.fstat(file)).st_uid == os.geteuid() and there.st_mode & 0o077:
        os.fchmod(file, 0o600)
    return file
