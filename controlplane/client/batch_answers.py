"""Types of responses about bulk actions."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

BatchState = Literal["RUNNING", "COMPLETED", "STOPPED"]


class Batch(TypedDict):
    """Bulk action. It has ended when `state` is not RUNNING."""

    id: str
    operation: str
    subject: str
    state: BatchState
    chosen: str
    query: str
    actor: str
    note: str
    total: int
    done: int
    refused: int
    pending: int
    created_at: str
    finished_at: str | None
    stopped_by: str


class BatchDetails(Batch):
    """Bulk action with a page of its items, and the number of refused items for each reason."""

    refusals: list[dict[str, Any]]
    items: list[BatchItem]
    next: str | None


class BatchItem(TypedDict):
    """Result of a bulk action for one item."""

    subject: str
    outcome: Literal["PENDING", "DONE", "REFUSED"]
    reason: str
    result: str | None
    at: str | None
