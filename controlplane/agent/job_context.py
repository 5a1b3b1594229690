"""For the code of a job: what it is the attempt of, how far it has come, and what it keeps for the next attempt."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from controlplane.agent.checkpoint_file import dump_checkpoint
from controlplane.agent.report_lines import BY_LINES, PREVIOUS, REPORTS_BY, replace_file, report_line


def progress(done: float, message: str = "") -> None:
    """How far it has come, from 0 to 1, and a word about it. Say it as often as you like.

    Outside a job nothing happens, and no job ever fails of it.
    """
    _report("JOB_PROGRESS", f"{min(max(done, 0), 1)} {' '.join(message.split())}")


def checkpoint(value: Any) -> None:
    """Keep JSON of at most 64 KiB with the job: its next attempt finds it as `context.checkpoint`; None: nothing more.

    What was kept last within a second counts. Outside a job nothing happens. Raises ValueError for what cannot be kept.
    """
    text = dump_checkpoint(value)
    _report("JOB_CHECKPOINT", text)
    if os.environ.get(REPORTS_BY) == BY_LINES:
        os.environ[PREVIOUS] = text


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
            return json.loads(Path(path).read_bytes() if path else os.environ.get(PREVIOUS, "null"))
        except (FileNotFoundError, ValueError):
            return None


context = JobContext()


def _report(variable: str, text: str) -> None:
    path = os.environ.get(variable)
    with contextlib.suppress(OSError, ValueError):
        if path:
            replace_file(Path(path), text.encode(errors="replace"))
        elif os.environ.get(REPORTS_BY) == BY_LINES:
            sys.stdout.write(f"{report_line(variable, text)}\n")
            sys.stdout.flush()
