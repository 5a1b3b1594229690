"""Calls about batches. A batch is an action on many objects that an operator starts and the control plane runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Unpack, cast

from controlplane.client.batch_answers import Batch, BatchDetails, BatchItem
from controlplane.client.jobs import new_key
from controlplane.client.requests import BatchOptions, Reference, id_of
from controlplane.client.servers import ServerCalls
from controlplane.client.session import Polls, StillRunning


class BatchCalls(ServerCalls):
    def begin_batch(
        self, operation: str, note: str, *, ids: Iterable[Reference] | None = None,
        filter: Mapping[str, Any] | None = None, namespace: str | None = None, key: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> Batch:  # fmt: skip
        """Start an action on many objects, given by `ids` or by a `filter` such as `{"state": "FAILED"}`.

        It starts only once, however often the call is tried.
        """
        body = {"operation": operation, "note": note, **options}
        body |= {} if ids is None else {"ids": [id_of(one) for one in ids]}
        body |= {} if filter is None else {"filter": dict(filter)}
        query = {"namespace": namespace}
        return cast(Batch, self.call("POST", "/batches", body, query=query, key=key or new_key()))

    def batches(
        self, *, state: str | None = None, operation: str | None = None, page: int | None = None
    ) -> Iterator[Batch]:
        """Yield batches, latest first, fetched in pages of `page`."""
        return self.items("/batches", {"state": state, "operation": operation, "limit": page})

    def batch(self, batch: Reference) -> BatchDetails:
        """Return the progress of a batch, the reasons of refused items, and its first items."""
        return cast(BatchDetails, self.call("GET", f"/batches/{id_of(batch)}"))

    def batch_items(
        self, batch: Reference, *, outcome: Literal["PENDING", "DONE", "REFUSED"] | None = None, page: int | None = None
    ) -> Iterator[BatchItem]:
        """Yield the result of each item, in the order of processing."""
        return self.items(f"/batches/{id_of(batch)}", {"outcome": outcome, "limit": page})

    def wait_batch(self, batch: Reference, timeout: float | None = None) -> BatchDetails:
        """Wait until the batch has ended or was stopped, and return it. Raise StillRunning after `timeout` seconds."""
        for _ in Polls(self.long_poll, timeout):
            current = self.batch(batch)
            if current["state"] != "RUNNING":
                return current
        raise StillRunning(f"Batch {current['id']} is RUNNING after {timeout:g} s", [current["id"]])

    def stop_batch(self, batch: Reference, note: str = "") -> Batch:
        """Stop a batch. It starts no more items, and finished items stay as they are."""
        return cast(Batch, self._end(f"/batches/{id_of(batch)}", "stop", {"note": note}, "batch_ended", "STOPPED"))
