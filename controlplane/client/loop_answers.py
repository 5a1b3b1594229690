"""Types of the fields of loops in responses, and of the progress of executions."""

from __future__ import annotations

from typing import TypedDict


class Progress(TypedDict):
    """Counts of the steps of an execution or the items of a loop. `done` of an execution counts all ended steps."""

    total: int
    done: int
    failed: int


class LoopFields(TypedDict):
    for_each: str | None
    max_parallel: int | None
    fail_fast: bool | None
    progress: Progress | None
