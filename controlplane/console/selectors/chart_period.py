"""Period of charts: a window up to now, or a range between two times, as the URL of the page gives it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django import forms

from controlplane.console.selectors.periods import MomentField, first_id_at, format_field
from controlplane.core.bounds import moment_after
from jobs.history import DEFAULT_WINDOW, WINDOWS, Window
from jobs.selectors.server_history import Period

WORDS = {"1h": "hour", "24h": "24 hours", "7d": "7 days"}
STEPS = (5, 10, 15, 30, 60, 120, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600)
POINTS = 120
"""Largest number of steps of a range."""
SHORTEST, LONGEST, OLDEST = timedelta(minutes=1), timedelta(days=30), timedelta(days=3650)


class RangeForm(forms.Form):
    """Range of charts."""

    since = MomentField(label="From (UTC)")
    until = MomentField(label="Until (UTC)")


def chosen_window(given: Mapping[str, str]) -> Window:
    return WINDOWS.get(given.get("window", ""), WINDOWS[DEFAULT_WINDOW])


@dataclass(frozen=True)
class ChartPeriod:
    """Period of the charts of a page."""

    period: Period
    window: str
    """Name of the window; empty for a range."""

    @classmethod
    def from_address(cls, given: Mapping[str, str], now: datetime) -> "ChartPeriod":
        """Return the period in the query of the URL. An invalid range is ignored."""
        form = RangeForm(given)
        since, until = (form.cleaned_data.get(name) for name in ("since", "until")) if form.is_valid() else (None, None)
        if since is not None and until is not None and since < until:
            return cls(build_range(since, until, now), "")
        window = chosen_window(given)
        end = math.floor(now.timestamp() / window.step) + 1
        return cls(Period(moment_of(end * window.step - window.seconds), window.step, window.points), window.name)

    def params(self, now: datetime) -> dict[str, object]:
        """Return the parameters of `sql.read_server_history`. Attempts since one period earlier are read too."""
        return self.period.params(now, first_id_at(moment_after(self.period.since, -self.period.seconds)))

    @property
    def words(self) -> str:
        """Return the period for a heading."""
        if self.window:
            return f"The last {WORDS[self.window]}"
        since, until = self.period.since, self.period.until
        return f"{since:%b %d %H:%M} to {until:{'%H:%M' if until.date() == since.date() else '%b %d %H:%M'}} UTC"

    def links(self, now: datetime) -> list[tuple[str, str]]:
        """Return links to neighbouring periods: label and URL."""
        since, until, quarter = self.period.since, self.period.until, timedelta(seconds=self.period.seconds / 4)
        beside = [("Earlier", since - 2 * quarter, until - 2 * quarter)]
        beside += [("Later", since + 2 * quarter, until + 2 * quarter)] if until < now else []
        beside += [("Closer", since + quarter, until - quarter)] if 2 * quarter >= SHORTEST else []
        beside += [("Wider", since - 2 * quarter, until + 2 * quarter)] if 8 * quarter <= LONGEST else []
        return [
            (label, f"?{urlencode({'since': format_field(begin), 'until': format_field(end)})}")
            for label, begin, end in beside
        ]


def build_range(since: datetime, until: datetime, now: datetime) -> Period:
    """Return the period that contains this range, within bounds. Steps begin at multiples of their length."""
    until = max(min(until, now + SHORTEST), now - OLDEST)
    since = max(min(since, until - SHORTEST), until - LONGEST)
    seconds = (until - since).total_seconds()
    step = next((step for step in STEPS if seconds <= step * POINTS), STEPS[-1])
    begin = math.floor(since.timestamp() / step)
    return Period(moment_of(begin * step), step, max(1, math.ceil(until.timestamp() / step) - begin))


def moment_of(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
