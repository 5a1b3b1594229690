"""For the code of a job: what it is the attempt of, how far it has come, and what it keeps for the next attempt."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from controlplane.agent.checkpoint_file import dump_checkpoint


def progress(done: float, message: str = "") -> None:
    """How far it has come, from 0 to 1, and a word about it. Say it as often as you like.

    Outside a job nothing happens, and no job ever fails of it.
    """
    _replace_file("JOB_PROGRESS", f"{min(max(done, 0), 1)} {' '.join(message.split())}")


def checkpoint(value: Any) -> None:
    """Keep JSON of at most 64 KiB with the job: its next attempt finds it as `context.checkpoint`; None: nothing more.

    What was kept last within a second counts. Outside a job nothing happens. Raises ValueError for what cannot be kept.
    """
    _replace_file("JOB_CHECKPOINT", dump_checkpoint(value))


class JobContext:
    """The attempt that this process is the code of; outside a job each is None."""

    @property
    def job(self) -> str | None:
        """The job's id."""
        return os.environ.get("JOB_ID")

    @property
    def attempt(self) -> int | None:
        """Its number: the fencing token for whatever the code writes to."""
        number = os.environ.get("JOB_ATTEMPT")
        return None if number is None else int(number)

    @property
    def execution(self) -> str | None:
        """Of a step: the id of its execution."""
        return os.environ.get("JOB_EXECUTION")

    @property
    def step(self) -> str | None:
        """Of a step: its key."""
        return os.environ.get("JOB_STEP")

    @property
    def checkpoint(self) -> Any:
        """What was kept last, by this attempt or by one before it; None: nothing."""
        path = os.environ.get("JOB_CHECKPOINT")
        try:
            return json.loads(Path(path).read_bytes()) if path else None
        except (FileNotFoundError, ValueError):
            return None


context = JobContext()


def _replace_file(variable: str, text: str) -> None:
    path = os.environ.get(variable)
    with contextlib.suppress(OSError):
        if path:
            draft = f"{path}.draft"
            with open(draft, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            os.replace(draft, path)  # read at any moment, it is whole
