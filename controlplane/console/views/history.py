"""Charts of the last hour, day or week for the overview, and the trends page by action and tag."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.console.charts.history import build_axis, build_table, draw_charts
from controlplane.console.charts.plots import format_seconds
from controlplane.console.page import HOME, render_page, require_reader, show_not_found
from controlplane.console.selectors.chart_period import WORDS, chosen_window
from controlplane.console.selectors.filters.servers import ScopeFilter
from controlplane.core.database.replica import read_past
from jobs.history import Dimension
from jobs.selectors.history import History, KeyHistory, read_histories_by, read_history
from liveness.selectors.clusters import is_known_cluster

KEYS_SHOWN = 50


def present_charts(history: History, cluster: str = "") -> dict[str, Any]:
    """Return the charts of a time window."""
    scope = {"cluster": cluster} if cluster else {}
    return {
        "window": history.window.name,
        "words": WORDS[history.window.name],
        "title": f"The last {WORDS[history.window.name]}",
        "jobs": "" if cluster else reverse("instance:jobs"),
        "windows": [(name, words, f"?{urlencode({'window': name, **scope})}") for name, words in WORDS.items()],
        "is_empty": history.is_empty,
        "charts": [] if history.is_empty else draw_charts(history),
        "axis": build_axis(history),
        "start": history.points[0].at.isoformat() if history.points else "",
        "step": history.window.step,
        "rows": [] if history.is_empty else build_table(history),
    }


@require_reader("job", about_instance=True)
def show_trends(request: HttpRequest) -> HttpResponse:
    """Show outcomes and durations of jobs by action, tag and cluster."""
    window, chosen = chosen_window(request.GET), ScopeFilter(request.GET)
    cluster = chosen.cluster_name
    if cluster and not is_known_cluster(cluster):
        return show_not_found(request, "cluster", "trends")
    dimensions = (Dimension.ACTION, Dimension.TAG, Dimension.CLUSTER)
    found, history = read_past(
        request, lambda: (read_histories_by(dimensions, window, KEYS_SHOWN), read_history(window, cluster))
    )
    actions, more_actions = found[Dimension.ACTION]
    tags, more_tags = found[Dimension.TAG]
    clusters, more_clusters = found[Dimension.CLUSTER]
    jobs, here = reverse("instance:jobs"), reverse("instance:trends")
    groups = [
        ("Action", [present_key(row, "") for row in actions], more_actions),
        ("Tag", [present_key(row, f"{jobs}?{urlencode({'tag': row.key})}") for row in tags], more_tags),
    ]
    if len(clusters) > 1:
        links = [f"{here}?{urlencode({'cluster': row.key, 'window': window.name})}" for row in clusters]
        groups.append(("Cluster", list(map(present_key, clusters, links)), more_clusters))
    shown = {
        "title": f"Trends of cluster {cluster}" if cluster else "Trends",
        "trail": [HOME],
        "history": present_charts(history, cluster),
        "groups": groups,
        "cluster": cluster,
        **({"filter": chosen, "choices": {"cluster": [row.key for row in clusters]}} if cluster or groups[2:] else {}),
    }
    return render_page(request, "trends", shown)


def present_key(row: KeyHistory, url: str) -> dict[str, Any]:
    rate = row.failure_rate
    return {
        "key": row.key,
        "url": url if row.key else "",
        "jobs": row.jobs,
        "failed": row.ended["failed"],
        "others": row.jobs - row.ended["completed"] - row.ended["failed"],
        "rate": "–" if rate is None else f"{100 * rate:.3g} %",
        "share": f"{100 * (rate or 0):.4g}%",
        "took": format_pair(row.took_p50, row.took_p95),
        "waited": format_pair(row.waited_p50, row.waited_p95),
    }


def format_pair(p50: float | None, p95: float | None) -> str:
    return "–" if p50 is None or p95 is None else f"{format_seconds(p50)} / {format_seconds(p95)}"
