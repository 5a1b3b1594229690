"""Five figures of the overview: workers alive, waiting, running, completed per minute, and failed."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from controlplane.console.charts.sparkline import draw_sparkline
from controlplane.console.formatting import format_number, seconds_since
from controlplane.core.durations import describe_exactly
from jobs.selectors.history import History, Point
from jobs.states import JobState
from liveness.states import ServerType

Figure = dict[str, Any]


def present_worker_figure(by_type: Iterable[dict[str, Any]], points: Sequence[Point], cluster: str) -> Figure:
    """Return how many workers are alive, with the number of slots over time."""
    workers = [row for row in by_type if row["type"] == ServerType.WORKER]
    well, present = (sum(row[column] for row in workers) for column in ("well", "present"))
    slots = [total_slots(point) for point in points]
    url = link("servers", {"type": "WORKER", "cluster": cluster})
    tone = "warn" if well < present else "ok" if present else ""
    value, beside = format_number(well), f"of {present:,}"
    return build_figure("Workers alive", value, beside, url, slots, tone, "slots over time")


def present_job_figures(figures: dict[str, Any], history: History, now: datetime, cluster: str) -> list[Figure]:
    """Return the figures about jobs. Sums of a minute that is not counted yet are left out."""
    points, counts = history.points, figures["counts"]
    whole = points[: history.whole]
    minutes = history.window.step / 60
    slots = next((total for total in map(total_slots, reversed(points)) if total is not None), None)
    last = whole[-1] if whole else None
    waiting = figures["waiting"]
    lately, before = (figures["incidents"][name] for name in ("failed_lately", "failed_before"))
    is_scoped = bool(cluster)

    def jobs(**query: str) -> str:
        return "" if is_scoped else link("jobs", query)

    return [
        build_figure(
            "Waiting", format_number(counts.get(JobState.PENDING, 0)),
            "" if waiting is None else ("oldest ", seconds_since(waiting, now)), jobs(state="PENDING"),
            [point.waiting for point in points], "accent", "waiting jobs over time",
        ),
        build_figure(
            "Running", format_number(counts.get(JobState.RUNNING, 0)),
            describe_slots(counts.get(JobState.RUNNING, 0), slots), jobs(state="RUNNING"),
            [point.running for point in points], "ok", "running jobs over time",
        ),
        build_figure(
            "Completed per min", "–" if last is None else f"{last.ended['completed'] / minutes:,.3g}",
            "" if last is None or last.waited_p95 is None else f"p95 wait {describe_exactly(last.waited_p95)}",
            link("trends", {"cluster": cluster}), [point.ended["completed"] / minutes for point in whole], "ok",
            "completed jobs per minute over time",
        ),
        build_figure(
            "Failed, last 5 min", format_number(lately),
            f"{before or 'none'} the hour before", jobs(state="FAILED", within="15m"),
            [point.ended["failed"] / minutes for point in whole], "bad", "failed jobs per minute over time",
            is_worrying=bool(lately),
        ),
    ]  # fmt: skip


def describe_slots(running: int, slots: float | None) -> str:
    """Return the number of slots as text.

    More jobs may run than there are slots: some need no worker, and a fleet may shrink.
    """
    if slots is None:
        return ""
    return f"{'of ' if running <= slots else ''}{slots:,.0f} slot{'' if slots == 1 else 's'}"


def total_slots(point: Point) -> float | None:
    return None if point.slots_free is None else (point.slots_used or 0) + point.slots_free


def build_figure(
    label: str,
    value: str,
    beside: str | tuple[str, Any],
    url: str,
    values: Sequence[float | None],
    tone: str,
    drawing: str,
    *,
    is_worrying: bool = False,
) -> Figure:
    words, time = beside if isinstance(beside, tuple) else (beside, "")
    return {
        "label": label,
        "value": value,
        "beside": words,
        "time": time,
        "url": url,
        "tone": tone,
        "is_worrying": is_worrying or tone == "warn",
        "sparkline": draw_sparkline(values),
        "drawing": drawing,
    }


def link(page: str, query: dict[str, str]) -> str:
    chosen = urlencode({name: value for name, value in query.items() if value})
    return f"{reverse(f'instance:{page}')}{'?' if chosen else ''}{chosen}"
