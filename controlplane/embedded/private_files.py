"""Access rights: only its user can read the data directory and its content."""

import os
import stat
from pathlib import Path

SHARED = stat.S_IWOTH | stat.S_ISVTX
OURS = ("admin_password", "secret_key", "postgres", "standalone.lock", "static", "broker", "tokens", "agents")


def prepare(data_dir: Path) -> None:
    """Create the directory, closed to other users. Also close an existing directory, unless it holds foreign files.

    If root has a database in it that belongs to another user, that user may pass through. Raise OSError.
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
    """Return a file descriptor to lock. Other users cannot open the file, so they cannot hold the lock.

    Raise OSError.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if (there := os.fstat(file)).st_uid == os.geteuid() and there.st_mode & 0o077:
        os.fchmod(file, 0o600)
    return file
