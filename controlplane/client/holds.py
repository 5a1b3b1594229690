"""Calls about holds, which stop the start of some work for a while. For operators; viewers may list them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from controlplane.client.batches import BatchCalls
from controlplane.client.flow_answers import Hold
from controlplane.client.jobs import new_key
from controlplane.client.requests import Reference, id_of
from controlplane.client.session import Refused


class HoldCalls(BatchCalls):
    def hold(
        self, of: Mapping[str, str], *, mode: Literal["pause", "refuse"] = "pause",
        duration_seconds: float | None = None, note: str = "", namespace: str | None = None,
    ) -> Hold:  # fmt: skip
        """Hold work, such as `{"tag": "gpu"}`, for `duration_seconds` or until `release_hold`.

        `of` has one entry: action, tag, limit, queue, namespace, execution or trigger. With `mode="refuse"` new
        submissions are refused too.
        """
        body: dict[str, Any] = {"of": dict(of), "mode": mode, "note": note}
        body |= {} if duration_seconds is None else {"duration_seconds": duration_seconds}
        return cast(Hold, self.call("POST", "/holds", body, query={"namespace": namespace}, key=new_key()))

    def holds(self, *, namespace: str | None = None, page: int | None = None) -> Iterator[Hold]:
        """Yield holds, latest first, fetched in pages of `page`."""
        return self.items("/holds", {"namespace": namespace, "limit": page})

    def release_hold(self, hold: Reference, note: str = "") -> None:
        """End a hold, so that its work starts again."""
        try:
            self.call("DELETE", f"/holds/{id_of(hold)}", query={"note": note or None})
        except Refused as refused:
            if not (refused.retried and refused.status == 404):  # an earlier try of this call released it
                raise
