"""The source files of the imported modules: if one of them changes, the next call needs a new process."""

from __future__ import annotations

import os
import sys
import time
from functools import cache

LOOK_SHARE = 100  # looks at source files take a hundredth of the time
LONGEST_PAUSE = 2.0  # s between two looks, also on a slow machine


class SourceFiles:
    """The source files of all imported modules, except installed ones."""

    def __init__(self) -> None:
        self._roots = tuple({os.path.join(prefix, "") for prefix in (sys.prefix, sys.base_prefix)})
        self._times: dict[str, int | None] = {}
        self._next_look_at, self._modules = 0.0, 0
        self.add_modules()

    def add_modules(self) -> None:
        """Add the files of modules that were imported since the last call."""
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for file in {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}:
            if file and file not in self._times and not file.startswith(self._roots):
                self._times[file] = _changed_at(file)

    def have_changed(self) -> bool:
        return any(_changed_at(file) != time for file, time in self._times.items())

    def were_written_since(self, began: int) -> bool:
        """Return True if a file was written since `began`, in nanoseconds. Its module may have the old content."""
        now = time.time_ns()
        return any(began < (time or 0) <= now for time in self._times.values())

    def are_found_changed(self) -> bool:
        """Look if a file has changed. Return False without a look if the last one was only a moment ago."""
        began = time.monotonic()
        if began < self._next_look_at:
            return False
        has_changed = self.have_changed()
        now = time.monotonic()
        self._next_look_at = now + min(LOOK_SHARE * (now - began), LONGEST_PAUSE)
        return has_changed


@cache
def of_this_process() -> SourceFiles:
    """Return the source files of this process. A fork inherits those of the process that imported the modules."""
    return SourceFiles()


def _changed_at(file: str) -> int | None:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return None
