"""Calls about limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast
from urllib.parse import quote

from controlplane.client.flow_answers import Limit, LimitWithKeys
from controlplane.client.session import Refused, Session

QUOTAS = {
    "max_running": "of a namespace: jobs that may run at once",
    "max_waiting": "of a namespace: jobs that may wait",
    "submissions_per_minute": "of a namespace: jobs that clients may submit in a minute",
}
OPTIONAL = (*QUOTAS, "fair", "weight")
"""Fields of a rule that are sent only if they are given."""


class LimitCalls(Session):
    def set_limit(
        self, pattern: str, *, running: int | None = None, starts: int | None = None, per_seconds: float | None = None,
        max_running: int | None = None, max_waiting: int | None = None, submissions_per_minute: int | None = None,
        fair: bool | None = None, weight: int | None = None, note: str = "", namespace: str | None = None,
    ) -> Limit:  # fmt: skip
        """Set the rule of a key such as `stripe`, or of each key under a prefix, such as `customer:*`.

        The rules `action:orders.charge`, `tag:gpu` and `namespace:red` limit jobs that never named them.
        At most `running` slots are held at once, and at most `starts` jobs start in `per_seconds`. The quotas
        `max_running` (the same as `running`), `max_waiting` and `submissions_per_minute` are for `namespace:NAME`. With
        `fair` the keys take turns; a key of `weight` 3 gets three starts where others get one. The rule replaces the
        one that is there, and acts at once.
        """
        rule = {"running": running, "starts": starts, "per_seconds": per_seconds, "note": note}
        values = (max_running, max_waiting, submissions_per_minute, fair, weight)
        rule |= {name: value for name, value in zip(OPTIONAL, values, strict=True) if value is not None}
        return cast(Limit, self.call("PUT", path_of(pattern), rule, query={"namespace": namespace}))

    def limits(self, *, namespace: str | None = None, page: int | None = None) -> Iterator[Limit]:
        """Yield the rules of limits, latest first."""
        return self.items("/limits", {"namespace": namespace, "limit": page})

    def limit(self, pattern: str, *, namespace: str | None = None) -> LimitWithKeys:
        """Return the rule of a pattern, with the keys in use that it matches."""
        return cast(LimitWithKeys, self.call("GET", path_of(pattern), query={"namespace": namespace}))

    def delete_limit(self, pattern: str, *, note: str = "", namespace: str | None = None) -> None:
        """Delete the rule of a pattern."""
        try:
            self.call("DELETE", path_of(pattern), query={"note": note, "namespace": namespace})
        except Refused as refused:
            # An earlier try without an answer may have deleted it.
            if not (refused.retried and refused.status == 404):
                raise


def path_of(pattern: str) -> str:
    return f"/limits/{quote(pattern, safe='')}"
