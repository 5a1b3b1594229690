"""The worker: claims jobs, runs each in a child process, reports. Imports no Django."""

from __future__ import annotations

import contextlib
import os


def progress(done: float, message: str = "") -> None:
    """For the code of a job: how far it has come, from 0 to 1, and a word about it. Say it as often as you like.

    Outside a job nothing happens, and no job ever fails of it.
    """
    path = os.environ.get("JOB_PROGRESS")
    line = f"{min(max(done, 0), 1)} {' '.join(message.split())}"
    with contextlib.suppress(OSError):
        if path:
            draft = f"{path}.draft"
            with open(draft, "w", encoding="utf-8", errors="replace") as file:
                file.write(line)
            os.replace(draft, path)  # read at any moment, it is whole
