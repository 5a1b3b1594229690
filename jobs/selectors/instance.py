"""How the whole control plane stands."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from controlplane.core.prepared import fetch_prepared_rows, fetch_prepared_sets
from controlplane.core.statements import Statement, fetch_result_sets
from jobs import states
from jobs.conf import unmatched_parameters
from jobs.history import Window
from jobs.sql import sql
from jobs.sql.rows.history import HistoryPoint
from jobs.sql.rows.tabs import TabCount
from jobs.sql.rows.verdict import ClusterFigures
from jobs.states import Flag
from liveness.selectors.clusters import parse_maintenances

COUNT_LIMIT = 1_000
"""So many jobs of a state that has ended are counted; of more the statistics have about how many."""


def instance_figures(
    window: Window | None = None,
    cluster: str = "",
    *,
    counts_tabs: bool = False,
    namespaces: Iterable[str] | None = None,
) -> dict[str, Any]:
    """How it stands, by the database's clock `now`: one query, which brings the points of a window's `history` too, and
    what `tab_counts()` says of these namespaces, `tabs`.

    Of one cluster it counts the jobs that its workers could take and those that its servers hold, and what of the rest
    has to do with it.

    `counts` of jobs by state, those `about` which only statistics tell, and for how many seconds the oldest waiting
    job could have been claimed, `waiting`; how many stand still, `flags` (of a set of tags so many are looked at as of
    a state are counted), these by their tags, `flagged_tags`, and by tags those that fail in so many `seconds` unless a
    worker comes, `to_be_failed`; what holds for all, `brakes` and `maintenances`; the rows that could not
    be written lately, `rows_left_out`; when the last check went through, `finished` (`check_age` ago), and how long it
    `took`; what went wrong lately, `incidents`; the `observed` clock, how long ago it last moved, `observed_lag`, and
    whether heartbeats get in,
    `witnessed`.
    """
    params: dict[str, Any] = {
        "ended": sorted(states.TERMINAL),
        "counted": COUNT_LIMIT,
        "only": None,
        "scan_limit": COUNT_LIMIT,
        "cluster": cluster,
        **unmatched_parameters(),
    }
    statements: list[Statement[Any]] = [sql.read_figures, sql.read_incidents]
    if cluster:
        statements.append(sql.read_cluster_figures)
    if window is not None:
        params |= {"seconds": window.seconds, "step": window.step, "span": window.span}
        statements.append(sql.read_history)
    if counts_tabs:
        params |= tab_parameters(namespaces)
        statements.append(sql.read_tab_counts)
    results: Any = fetch_prepared_sets(*statements, **params)
    [row], [incidents], *more = results
    tabs: list[TabCount] = more.pop() if counts_tabs else []
    points: list[HistoryPoint] = more.pop() if window is not None else []
    read = {key: json.loads(value or "null") for key, value in row._asdict().items() if key in JSON_FIGURES}
    flags = {flag: (read["flags"] or {}).get(flag, 0) for flag in Flag}
    lately = {**incidents._asdict(), "incident": json.loads(incidents.incident or "null")}
    maintenances = parse_maintenances(row.maintenances)
    figures = {
        **row._asdict(),
        **read,
        "incidents": lately,
        "counts": read["counts"] or {},
        "about": read["about"] or [],
        "brakes": read["brakes"] or [],
        "maintenances": maintenances,
        "in_maintenance": any(entry["cluster"] is None for entry in maintenances),
        "flags": flags,
        "history": points,
        "tabs": tabs,
    }
    return scope_figures(figures, cluster, more[0][0]) if cluster else figures


def tab_counts(namespaces: Iterable[str] | None) -> list[TabCount]:
    """How many there are of what the tabs of the pages tell the number of, of these namespaces or (None) of all."""
    return sql.read_tab_counts.fetch_rows(**tab_parameters(namespaces))


def tab_counts_beside(namespaces: Iterable[str] | None, named: Mapping[str, UUID]) -> tuple[list[TabCount], set[str]]:
    """The same, and in that query the namespaces of what an address names by `server`, `job` and so on."""
    ids = dict.fromkeys(("server", "job", "execution", "trigger")) | dict(named)
    counts, of = fetch_result_sets(sql.read_tab_counts, sql.read_namespaces_of, **tab_parameters(namespaces), **ids)
    return counts, {row.namespace for row in of}


def tab_parameters(namespaces: Iterable[str] | None) -> dict[str, Any]:
    return {"counted": COUNT_LIMIT, "namespaces": None if namespaces is None else list(namespaces)}


def job_counts() -> dict[str, Any]:
    """`counts` of jobs by state, and those `about` which only statistics tell, as `instance_figures()` has them."""
    [row] = fetch_prepared_rows(sql.read_job_counts, ended=sorted(states.TERMINAL), counted=COUNT_LIMIT, cluster="")
    return {"counts": json.loads(row.counts or "{}"), "about": json.loads(row.about or "[]")}


def scope_figures(figures: dict[str, Any], cluster: str, own: ClusterFigures) -> dict[str, Any]:
    """Of `instance_figures()` what has to do with one cluster. What no worker could take is of none."""
    held = {Flag.HELD_BY_LOST_SERVER: own.held_by_lost_server}
    maintenances, brakes = (
        [row for row in figures[name] if row["cluster"] in (None, cluster)] for name in ("maintenances", "brakes")
    )
    return {
        **figures,
        "counts": json.loads(own.counts or "{}"),
        "about": [],
        "waiting": own.waiting,
        "flags": held,
        "flagged_tags": [{"flag": flag, "tags": [], "jobs": jobs} for flag, jobs in held.items() if jobs],
        "to_be_failed": None,
        "brakes": brakes,
        "maintenances": maintenances,
        "in_maintenance": bool(maintenances),
    }


JSON_FIGURES = {
    "counts", "about", "brakes", "flags", "flagged_tags", "to_be_failed", "rows_left_out",
}  # fmt: skip
