"""Functions for the code of a job: its context, its progress, and its checkpoint for the next attempt."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar

from controlplane.agent.from_code.checkpoint_file import dump_checkpoint
from controlplane.agent.from_code.report_lines import BY_LINES, PREVIOUS, REPORTS_BY, replace_file, report_line

CURRENT: ContextVar[Mapping[str, str] | None] = ContextVar("controlplane_attempt", default=None)
"""The variables of the attempt in a pool process. Elsewhere the environment has them."""


class PoolState:
    """State of a pool process."""

    is_pool = False
    running: ClassVar[list[Mapping[str, str]]] = []  # variables of the attempts that run now


def begin_attempt(variables: Mapping[str, str]) -> None:
    """Make this the attempt of the current context, and let it report. A pool process calls it."""
    current = dict(variables)
    PoolState.running.append(current)
    CURRENT.set(current)


def end_attempt() -> None:
    """Drop all later reports of the current context's attempt, for instance those of a thread that it left behind."""
    current = CURRENT.get()
    PoolState.running[:] = [one for one in PoolState.running if one is not current]


def bind_threads() -> None:
    """Bind each thread that is started from now on to the attempt of the code that starts it.

    A pool process calls this once. Without it a thread that outlives its attempt would report for the next one.
    """
    PoolState.is_pool = True
    start: Callable[[threading.Thread], None] = threading.Thread.start

    def start_bound(thread: threading.Thread) -> None:
        run, current = thread.run, CURRENT.get()

        def run_bound() -> None:
            CURRENT.set(current)
            run()

        if current is not None:
            thread.run = run_bound  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_bound  # type: ignore[method-assign, assignment]


def variables() -> Mapping[str, str]:
    """Return the variables of the attempt that the caller belongs to."""
    current = CURRENT.get()
    if current is None:
        return {} if PoolState.is_pool else os.environ
    return current


def progress(done: float, message: str = "") -> None:
    """Report the progress of this job, from 0 to 1, with an optional message. It may be called any number of times.

    Outside a job it does nothing. It never raises because of a full disk or a closed file.
    """
    _report("JOB_PROGRESS", f"{min(max(done, 0), 1)} {' '.join(message.split())}")


def checkpoint(value: Any) -> None:
    """Keep a JSON value of at most 64 KiB with the job. Its next attempt finds it as `context.checkpoint`.

    None removes the value. The last value within a second counts. Outside a job nothing happens. Raise ValueError if
    the value is not JSON or too large.
    """
    text = dump_checkpoint(value)
    _report("JOB_CHECKPOINT", text)
    if os.environ.get(REPORTS_BY) == BY_LINES:
        os.environ[PREVIOUS] = text


class JobContext:
    """The attempt that the caller belongs to. Outside a job all properties are None."""

    @property
    def job(self) -> str | None:
        """The job's id."""
        return variables().get("JOB_ID")

    @property
    def attempt(self) -> int | None:
        """Number of the attempt: the fencing token for everything that the code writes to."""
        number = variables().get("JOB_ATTEMPT")
        return None if number is None else int(number)

    @property
    def server(self) -> str | None:
        """Id of the server that runs the attempt."""
        return variables().get("JOB_SERVER_ID")

    @property
    def execution(self) -> str | None:
        """Id of the execution, if the job is a step."""
        return variables().get("JOB_EXECUTION")

    @property
    def step(self) -> str | None:
        """Key of the step, if the job is a step."""
        return variables().get("JOB_STEP")

    @property
    def checkpoint(self) -> Any:
        """Last checkpoint, of this attempt or an earlier one, or None."""
        path = variables().get("JOB_CHECKPOINT")
        try:
            return json.loads(Path(path).read_bytes() if path else variables().get(PREVIOUS, "null"))
        except (FileNotFoundError, ValueError):
            return None


context = JobContext()


def _report(variable: str, text: str) -> None:
    path = variables().get(variable)
    if PoolState.is_pool and not any(CURRENT.get() is one for one in PoolState.running):
        return  # its attempt has ended
    with contextlib.suppress(OSError, ValueError):
        if path:
            replace_file(Path(path), text.encode(errors="replace"))
        elif os.environ.get(REPORTS_BY) == BY_LINES:
            sys.stdout.write(f"{report_line(variable, text)}\n")
            sys.stdout.flush()
