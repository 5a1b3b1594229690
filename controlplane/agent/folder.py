"""The folder of a running agent for files of its attempts; those of agents that were killed go with the next start."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger()
PREFIX = "controlplane-jobs-"
TRIES, PAUSE = 100, 0.02  # of making it again: whoever removes it then, taking it for a dead agent's, is soon done


class Folder:
    """Made in the temporary directory, and held by a lock for as long as its process lives."""

    def __init__(self) -> None:
        clear()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            # Another agent that starts may take it for a dead one's before it is locked.
            if (lock := _locked(self.path)) is not None:
                self._lock = lock
                return

    def keep(self) -> Path:
        """Its path, where it is made and locked again if somebody has removed it. Raises OSError."""
        for _ in range(TRIES):
            if self._is_there():
                return self.path
            with suppress(FileNotFoundError, FileExistsError):  # it is being removed at this moment
                make_private(self.path)
            if (lock := _locked(self.path)) is not None:
                os.close(self._lock)
                self._lock = lock
            else:
                time.sleep(PAUSE)
        raise PermissionError(f"{self.path} is held by somebody else")

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._lock), self.path.lstat())
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        _remove(self.path)
        os.close(self._lock)


def clear() -> None:
    """Remove the folders of this user's agents that are dead."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if (lock := _locked(path)) is not None:
            _remove(path)
            os.close(lock)


def make_private(folder: Path) -> None:
    """A folder that is this user's alone, where there is none yet. Raises OSError."""
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a directory of ours")
    folder.chmod(0o700)


def _locked(path: Path) -> int | None:
    """A file descriptor that holds the folder; None: it is not ours, somebody holds it, or it has gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened, there = os.fstat(descriptor), path.lstat()
        if opened.st_uid == os.getuid() and stat.S_ISDIR(there.st_mode) and os.path.samestat(opened, there):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _remove(path: Path) -> None:
    """What jobs have made in there may refuse: that is no reason to fail."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        log.warning("A folder could not be removed", folder=str(path))
