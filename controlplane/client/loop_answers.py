"""Types of the parts of responses that are about loops."""

from __future__ import annotations

from typing import TypedDict


class Progress(TypedDict):
    total: int
    done: int
    failed: int


class LoopFields(TypedDict):
    for_each: str | None
    max_parallel: int | None
    fail_fast: bool | None
    progress: Progress | None
