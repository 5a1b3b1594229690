"""Progress bar of an execution, on a terminal."""

from __future__ import annotations

import sys

from controlplane.client.loop_answers import Progress

WIDTH = 30
"""Characters of a full bar."""


def show_progress(progress: Progress) -> None:
    """Draw the progress over the last one on the standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        return
    is_over = progress["total"] == progress["done"]
    sys.stderr.write(f"\r\x1b[K{draw(progress)}" + ("\n" if is_over else ""))
    sys.stderr.flush()


def draw(progress: Progress) -> str:
    """Return the bar with the number of steps: `[######------] 120 of 400 steps, 3 failed`."""
    total, done, failed = progress["total"], progress["done"], progress["failed"]
    full = WIDTH * done // total if total else 0
    words = f"{done} of {total} steps" + (f", {failed} failed" if failed else "")
    return f"[{'#' * full}{'-' * (WIDTH - full)}] {words}"
