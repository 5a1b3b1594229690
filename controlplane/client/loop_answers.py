"""Types of the parts of responses that are about loops, and the progress of executions."""

from __future__ import annotations

from typing import TypedDict


class Progress(TypedDict):
    """Number of steps of an execution, or of items of a loop. `done` of an execution counts all that have ended."""

    total: int
    done: int
    failed: int


class LoopFields(TypedDict):
    for_each: str | None
    max_parallel: int | None
    fail_fast: bool | None
    progress: Progress | None
