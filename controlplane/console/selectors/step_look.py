"""View options of an execution page, kept in its URL: open folds, time range, state and page of the steps."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.http import QueryDict

from controlplane.console.charts.axis import Axis
from controlplane.core.bounds import moment_after
from jobs.states import JobState

MOST_OPEN, LONGEST_NAME = 20, 300
SHORTEST, LONGEST = 1.0, 1e9
"""Limits of the time range, in seconds."""


@dataclass(frozen=True)
class StepLook:
    opened: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    """Seconds since the execution began. None means no time range."""
    state: str = ""
    page: int = 1

    @classmethod
    def from_address(cls, given: QueryDict) -> "StepLook":
        """Read the options from the URL. Invalid values are ignored."""
        since, until = parse_seconds(given.get("from")), parse_seconds(given.get("to"))
        if since is None or until is None or until - since < SHORTEST:
            since = until = None
        page = given.get("page", "")
        return cls(
            tuple(name for name in given.getlist("open")[:MOST_OPEN] if len(name) <= LONGEST_NAME),
            since,
            until,
            state if (state := given.get("state", "")) in set(JobState) else "",
            int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 6 else 1,
        )

    def url(self, anchor: str = "", **changes: Any) -> str:
        look = replace(self, **changes)
        address = QueryDict(mutable=True)
        address.setlist("open", list(look.opened))
        if look.since is not None and look.until is not None:
            address["from"], address["to"] = f"{look.since:.10g}", f"{look.until:.10g}"
        if look.state:
            address["state"] = look.state
        if look.page > 1:
            address["page"] = str(look.page)
        return f"?{address.urlencode()}" + (f"#{anchor}" if anchor else "")

    def toggle(self, fold: str) -> str:
        opened = self.opened
        changed = tuple(name for name in opened if name != fold) if fold in opened else (*opened, fold)
        return self.url("lanes", opened=changed)

    @property
    def is_whole(self) -> bool:
        return self.since is None

    def axis(self, begun_at: datetime, end: datetime) -> Axis:
        if self.since is None or self.until is None:
            return Axis(begun_at, end)
        return Axis(moment_after(begun_at, self.since), moment_after(begun_at, self.until))

    def zooms(self, total: float) -> list[tuple[str, str]]:
        """Return labels and links for other time ranges. `total` is the execution's duration in seconds."""
        since, until = (0.0, total) if self.since is None or self.until is None else (self.since, self.until)
        span = until - since

        def at(start: float, wide: float) -> str:
            start = max(0.0, min(start, total - wide))
            if wide >= total:
                return self.url("lanes", since=None, until=None)
            return self.url("lanes", since=round(start, 3), until=round(start + wide, 3))

        links = [("Closer", at(since + span / 4, span / 2))] if span >= 2 * SHORTEST else []
        if not self.is_whole:
            links += [("Wider", at(since - span / 2, 2 * span))]
            links += [("Earlier", at(since - span / 2, span))] if since > 0 else []
            links += [("Later", at(since + span / 2, span))] if until < total else []
            links += [("All", self.url("lanes", since=None, until=None))]
        return links

    def around(self, begun_at: datetime, start: datetime, end: datetime, total: float) -> str:
        """Return a link to the time range around one step."""
        since, until = ((at - begun_at).total_seconds() for at in (start, end))
        margin = max(SHORTEST, (until - since) / 2)
        since, until = max(0.0, since - margin), min(total, until + margin)
        if until - since < SHORTEST or until - since >= total:
            return self.url("lanes", since=None, until=None)
        return self.url("lanes", since=round(since, 3), until=round(until, 3))


def parse_seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds <= LONGEST else None
