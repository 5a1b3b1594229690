"""The folder of a running agent for the files of its attempts.

Each start removes the folders of agents that were killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger()
PREFIX = "controlplane-jobs-"
TRIES, PAUSE = 100, 0.02  # to create it again, while another agent removes it as the folder of a dead agent
CHECKED = 64 * 1024  # bytes that must fit on the disk: more than the start of an attempt writes


class Folder:
    """A folder in the temporary directory, locked as long as its process lives.

    It is created when it is first needed, so that an agent can start with a full disk.
    """

    def __init__(self) -> None:
        self.path = temporary_directory() / f"{PREFIX}{secrets.token_hex(8)}"
        self._lock: int | None = None
        with suppress(OSError):
            clear()
            self.keep()

    def keep(self) -> Path:
        """Return the path. Create and lock the folder again if it was removed. Raise OSError if that fails."""
        for _ in range(TRIES):
            if self._is_there():
                return self.path
            with suppress(FileNotFoundError, FileExistsError):  # another process removes it at this moment
                make_private(self.path)
            if (lock := _locked(self.path)) is not None:
                self._unlock()
                self._lock = lock
            else:
                time.sleep(PAUSE)
        raise PermissionError(errno.EACCES, "another process holds this folder", str(self.path))

    def check(self) -> None:
        """Raise OSError if no files can be written here."""
        file = self.keep() / ".check"
        try:
            file.write_bytes(bytes(CHECKED))
        finally:
            file.unlink(missing_ok=True)

    def remove(self) -> None:
        remove_tree(self.path)
        self._unlock()

    def _is_there(self) -> bool:
        try:
            return self._lock is not None and os.path.samestat(os.fstat(self._lock), self.path.lstat())
        except FileNotFoundError:
            return False

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def temporary_directory() -> Path:
    """Return the system's temporary directory, also while no file can be written to it."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 (only its name)


def clear() -> None:
    """Remove the folders of this user's agents that are dead."""
    for path in temporary_directory().glob(f"{PREFIX}*"):
        if (lock := _locked(path)) is not None:
            remove_tree(path)
            os.close(lock)


def make_private(folder: Path) -> None:
    """Create a folder that only this user may enter, if it does not exist. Raise OSError if that is not possible."""
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a directory of this user")
    folder.chmod(0o700)


def remove_tree(top: Path) -> None:
    """Remove a folder with everything in it, even read-only or very deep folders made by the code of a job.

    Each inner folder is moved up before it is emptied, so no path gets too long. No other process may use `top`.
    """
    problems: list[OSError] = []
    token = secrets.token_hex(4)  # the code must not be able to guess the new names of its folders
    if top.is_symlink():
        _try(problems, top.unlink)
        return
    folders = [top]
    for number, folder in enumerate(folders):
        _open_up(folder)
        for place, entry in enumerate(_list_entries(problems, folder)):
            if entry.is_dir(follow_symlinks=False):
                _open_up(entry.path)
                moved = top / f".{token}-{number}-{place}"
                if _try(problems, os.rename, entry.path, moved):
                    folders.append(moved)
            else:
                _try(problems, os.unlink, entry.path)
    for folder in reversed(folders):
        _try(problems, folder.rmdir)
    if problems:
        log.warning("A folder could not be removed", folder=str(top), why=str(problems[0]))


def _list_entries(problems: list[OSError], folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(error)
        return []


def _try(problems: list[OSError], call: Callable[..., object], *arguments: object) -> bool:
    try:
        call(*arguments)
        return True
    except FileNotFoundError:  # it was never created, or another process removed it
        return False
    except OSError as error:
        problems.append(error)
        return False


def _open_up(folder: str | Path) -> None:
    """Let the owner change a folder's content. Folders of other users stay as they are."""
    with suppress(OSError):
        os.chmod(folder, 0o700)


def _locked(path: Path) -> int | None:
    """Return a file descriptor that locks the folder.

    Return None if it has gone, is locked, or belongs to another user.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened, there = os.fstat(descriptor), path.lstat()
        if opened.st_uid == os.getuid() and stat.S_ISDIR(there.st_mode) and os.path.samestat(opened, there):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
