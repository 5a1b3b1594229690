"""Selectors of the figures of the whole control plane."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from controlplane.core.statements import Statement, fetch_result_sets
from jobs import states
from jobs.conf import flag_parameters
from jobs.history import Window
from jobs.models import WorkerJob
from jobs.sql import sql
from jobs.sql.rows.history import HistoryPoint
from jobs.sql.rows.selectors import Prospect
from jobs.sql.rows.tabs import TabCount
from jobs.sql.rows.verdict import ClusterFigures
from jobs.states import Flag, JobState
from liveness.selectors.clusters import parse_maintenances

COUNT_LIMIT = 1_000
"""Largest exact count of jobs in an ended state. Larger counts are estimates from statistics."""


def instance_figures(
    window: Window | None = None,
    cluster: str = "",
    *,
    counts_tabs: bool = False,
    namespaces: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the figures of the instance, or of one `cluster`, in one query. `now` is the database's clock.

    For a cluster, jobs are those that its workers could take or its servers hold, and other figures are about the
    cluster. The keys are:

    - `counts`: jobs by state; `about`: the states with an estimate
    - `waiting`: seconds since the oldest waiting job could have been claimed
    - `flags`, `flagged_tags`: jobs that wait for a person to act, by flag and by tags (at most COUNT_LIMIT of each set
      of tags are checked)
    - `to_be_failed`: by tags, jobs that fail in so many `seconds` unless a worker comes
    - `brakes`, `maintenances`: those in force now; `in_maintenance`: True if the whole scope is in maintenance
    - `rows_left_out`: rows that could not be written recently
    - `oldest_snapshot`: the `kind`, `name`, `pid` and age in `seconds` of the holder of the oldest snapshot
    - `holds`: the oldest holds in force, each with `kind`, `value`, `name`, `mode`, `note`, `by`, age in `seconds`,
      and the `jobs` that wait for it
    - `finished`, `check_age`, `took`: when the last liveness check ended, how long ago, and how long it took
    - `observed`, `observed_lag`: the observed time, and how long ago it last moved
    - `witnessed`: True if heartbeats arrive
    - `incidents`: recent incidents
    - `history`: points of the `window`, if there is one
    - `tabs`: `tab_counts()` of the `namespaces`, with `counts_tabs`
    """
    params: dict[str, Any] = {
        "ended": sorted(states.TERMINAL),
        "counted": COUNT_LIMIT,
        "only": None,
        "scan_limit": COUNT_LIMIT,
        "cluster": cluster,
        **flag_parameters(),
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
    results: Any = fetch_result_sets(*statements, **params)
    [row], [incidents], *more = results
    tabs: list[TabCount] = more.pop() if counts_tabs else []
    points: list[HistoryPoint] = more.pop() if window is not None else []
    read = {key: json.loads(value or "null") for key, value in row._asdict().items() if key in JSON_FIGURES}
    flags = {flag: (read["flags"] or {}).get(flag, 0) for flag in Flag}
    lately = {
        **incidents._asdict(),
        **{name: json.loads(getattr(incidents, name) or "null") for name in ("incident", "last_worker")},
    }
    maintenances = parse_maintenances(row.maintenances)
    figures = {
        **row._asdict(),
        **read,
        "incidents": lately,
        "counts": read["counts"] or {},
        "about": read["about"] or [],
        "brakes": read["brakes"] or [],
        "holds": read["holds"] or [],
        "maintenances": maintenances,
        "in_maintenance": any(entry["cluster"] is None for entry in maintenances),
        "flags": flags,
        "history": points,
        "tabs": tabs,
    }
    return scope_figures(figures, cluster, more[0][0]) if cluster else figures


def tab_counts(namespaces: Iterable[str] | None) -> list[TabCount]:
    """Return the counts on the tabs of the pages, for these namespaces (None: all)."""
    return sql.read_tab_counts.fetch_rows(**tab_parameters(namespaces))


def tab_counts_beside(namespaces: Iterable[str] | None, named: Mapping[str, UUID]) -> tuple[list[TabCount], set[str]]:
    """Return `tab_counts()`, and the namespaces of the objects in an address (`server`, `job` …). One query."""
    ids = dict.fromkeys(("server", "job", "execution", "trigger")) | dict(named)
    counts, of = fetch_result_sets(sql.read_tab_counts, sql.read_namespaces_of, **tab_parameters(namespaces), **ids)
    return counts, {row.namespace for row in of}


def tab_counts_with_prospects(
    namespaces: Iterable[str] | None, jobs: Iterable[WorkerJob]
) -> tuple[list[TabCount], dict[UUID, Prospect]]:
    """Return `tab_counts()`, and the prospect of each job by id: why it waits for a person, or when it fails.

    One query.
    """
    open_ones = [job.pk for job in jobs if job.state in (JobState.PENDING, JobState.CLAIMED, JobState.RUNNING)]
    counts, rows = fetch_result_sets(
        sql.read_tab_counts, sql.read_prospects, only=open_ones, scan_limit=None,
        **tab_parameters(namespaces), **flag_parameters(),
    )  # fmt: skip
    return counts, {row.id: row for row in rows}


def tab_parameters(namespaces: Iterable[str] | None) -> dict[str, Any]:
    return {"counted": COUNT_LIMIT, "namespaces": None if namespaces is None else list(namespaces)}


def job_counts() -> dict[str, Any]:
    """Return `counts` of jobs by state, and the states with an estimate (`about`), as in `instance_figures()`."""
    [row] = sql.read_job_counts.fetch_rows(ended=sorted(states.TERMINAL), counted=COUNT_LIMIT, cluster="")
    return {"counts": json.loads(row.counts or "{}"), "about": json.loads(row.about or "[]")}


def scope_figures(figures: dict[str, Any], cluster: str, own: ClusterFigures) -> dict[str, Any]:
    """Restrict `instance_figures()` to one cluster. Jobs that no worker could take belong to no cluster."""
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
    "counts", "about", "brakes", "flags", "flagged_tags", "to_be_failed", "rows_left_out", "oldest_snapshot",
    "holds",
}  # fmt: skip
