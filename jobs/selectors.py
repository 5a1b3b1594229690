"""Reads for the API and the pages."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import (
    BooleanField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    JSONField,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    TextField,
    UUIDField,
    Value,
    When,
    prefetch_related_objects,
)
from django.db.models.functions import Coalesce, JSONObject

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.statements import fetch_result_sets
from jobs import states
from jobs.conf import conf, unmatched_parameters
from jobs.content_selectors import LARGE_FIELDS, MUCH, content, put_in_place, without_large
from jobs.errors import JobNotWaiting, JobUnknown
from jobs.models import Attempt, Execution, LateReport, WorkerJob
from jobs.models.jobs import IN_QUARANTINE
from jobs.scan_window import field_is_any_of
from jobs.sql import sql
from jobs.sql.rows.selectors import WrittenLine
from jobs.states import JobState, Unmatched
from liveness.conf import conf as liveness_conf
from liveness.selectors.servers import servers_with_silence

RESUBMISSIONS = WorkerJob.objects.filter(resubmission_of=OuterRef("pk"))
# A scalar subquery: looked up by index, never hashed from the whole table.
IS_RESUBMITTED = Coalesce(
    Subquery(RESUBMISSIONS.values(yes=Value(True))[:1], output_field=BooleanField()), Value(False)
)
LAST_RESUBMISSION = Subquery(RESUBMISSIONS.order_by("-pk").values("pk")[:1], output_field=UUIDField())
"""What an ended job was submitted again as, last."""
CHILD_EXECUTION = Subquery(Execution.objects.filter(parent_step=OuterRef("pk")).values("pk"), output_field=UUIDField())


class DetailedJob(WorkerJob):
    """What the functions here know of a job, for whoever reads it; never stored."""

    now: datetime
    is_step: bool
    is_cancelling: bool
    is_quarantined: bool
    is_resubmitted: bool
    resubmitted_as: UUID | None
    child_execution: UUID | None
    superseded_reports: list[dict[str, Any]]
    log: list[dict[str, Any]] | None
    flags: list[str]
    left_out: list[str]
    operator_events: list[dict[str, Any]]
    last_attempt: dict[str, Any] | None

    class Meta:
        abstract = True


def jobs_with_attempts() -> QuerySet[WorkerJob]:
    """Jobs with their attempts, these with their servers, the reports that came too late, the execution that each
    is, `child_execution`, and what each was submitted again as, `resubmitted_as`."""
    jobs = WorkerJob.objects.annotate(child_execution=CHILD_EXECUTION, resubmitted_as=LAST_RESUBMISSION)
    return jobs.prefetch_related(*attempts_and_late_reports())


def attempts_and_late_reports() -> tuple["Prefetch[Any]", ...]:
    much = f"sum(octet_length({{0}}::text)) over (order by jobs_attempt.id desc) > {MUCH}"  # the last are whole
    attempts = Attempt.objects.select_related("server").defer("error").annotate(**content("error", much))
    return (
        Prefetch("attempts", attempts.order_by("number")),
        Prefetch("late_reports", LateReport.objects.order_by("id")),
    )


def submitted_jobs(ids: Iterable[UUID], *, are_whole: bool) -> dict[UUID, WorkerJob]:
    """Jobs as `jobs_with_attempts()` has them, without what is large of them unless `are_whole`. Those that were never
    claimed have no attempts, and are not asked for any: nearly all that were submitted just now."""
    jobs = jobs_with_attempts().prefetch_related(None)
    stored = (jobs if are_whole else without_large(jobs)).in_bulk(list(ids))
    for job in stored.values():
        if not job.attempt_count:
            vars(job)["_prefetched_objects_cache"] = {"attempts": (), "late_reports": ()}
    if claimed := [job for job in stored.values() if job.attempt_count]:
        prefetch_related_objects(claimed, *attempts_and_late_reports())
    jobs_with_flags(stored.values())
    return stored


def job_timeline(job: WorkerJob) -> list[dict[str, Any]]:
    """What happened to a job, in order. Entries of the job itself have no attempt."""
    entries = [timeline_entry(None, states.JobState.PENDING, job.created_at)]
    for attempt in job.attempts.all():
        server = {"id": attempt.server_id, "name": attempt.server.name}
        entries.append(timeline_entry(attempt.number, states.AttemptState.CLAIMED, attempt.claimed_at, server))
        if attempt.started_at:
            entries.append(timeline_entry(attempt.number, states.AttemptState.RUNNING, attempt.started_at, server))
        if attempt.finished_at:
            entries.append(timeline_entry(attempt.number, attempt.state, attempt.finished_at, server, attempt.reason))
            entries[-1]["by"] = attempt.ended_by
    if job.finished_at:
        entries.append(timeline_entry(None, job.state, job.finished_at, reason=(job.error or {}).get("code", "")))
    return entries


def timeline_entry(
    attempt: int | None, state: str, at: datetime, server: dict[str, Any] | None = None, reason: str = ""
) -> dict[str, Any]:
    return {"attempt": attempt, "state": str(state), "at": at, "server": server, "reason": reason}


def jobs_with_flags(jobs: Iterable[WorkerJob]) -> list[WorkerJob]:
    """Jobs with why they stand still, `flags`: nearly always nothing; and what is `left_out` of them."""
    rows: list[Any] = list(jobs)
    put_in_place(rows, LARGE_FIELDS)
    put_in_place((attempt for job in rows for attempt in job.attempts.all()), ["error"])
    hanging = [job.pk for job in rows if may_stand_still(job)]
    flags = (
        {row.id: row.flag for row in sql.read_flags.fetch_rows(only=hanging, scan_limit=None, **unmatched_parameters())}
        if hanging
        else {}
    )
    for job in rows:
        job.flags = [flags[job.pk]] if job.pk in flags else []
    return rows


def may_stand_still(job: WorkerJob) -> bool:
    """Whether it is worth asking: not of what was submitted just now, which fails when nobody comes for it."""
    if job.state == JobState.PENDING:
        return job.attempt_count > 0 or job.unmatched == Unmatched.WAIT or conf().unmatched_after is None
    return job.state == JobState.RUNNING


def jobs_with_action_guards(jobs: QuerySet[WorkerJob]) -> QuerySet[WorkerJob]:
    """Jobs with what decides what may be done to them: whether each `is_step`, `is_execution` (now), `is_cancelling`,
    `is_quarantined`, `is_resubmitted`."""
    return jobs.annotate(
        is_step=boolean_expression(Q(execution__isnull=False)),
        # What runs and is held by no worker: `job_held_while_live`.
        is_execution=boolean_expression(Q(state=JobState.RUNNING, attempt_id__isnull=True)),
        is_cancelling=boolean_expression(Q(cancel_requested_at__isnull=False)),
        is_quarantined=Coalesce(boolean_expression(IN_QUARANTINE), Value(False)),
        is_resubmitted=IS_RESUBMITTED,
    )


def boolean_expression(condition: Q) -> ExpressionWrapper:
    return ExpressionWrapper(condition, output_field=BooleanField())


def jobs_without_content() -> QuerySet[WorkerJob]:
    """Jobs as `jobs_with_action_guards()` has them, without what went in and came out, with `now`."""
    return jobs_with_action_guards(WorkerJob.objects.annotate(now=ClockTimestamp())).defer(
        "payload", "output", "checkpoint", "fingerprint"
    )


def quarantined_jobs() -> QuerySet[WorkerJob]:
    """Of these, those in quarantine."""
    return jobs_without_content().filter(IN_QUARANTINE)


def jobs_page(jobs: QuerySet[WorkerJob], before: UUID | None, limit: int, order: str = "") -> QuerySet[WorkerJob]:
    """Of these `jobs_without_content()` a page, latest first or in another order, with the last attempt of each,
    `last_attempt`, and what each was submitted again as, `resubmitted_as`."""
    if order in SORT_KEYS:
        key = SORT_KEYS[order]().desc(nulls_last=True)
        # By nothing but what that takes; the rest is read of the page alone.
        first = jobs.order_by(key, "-id").values("pk")[:limit]
        page = jobs.filter(field_is_any_of("pk", first)).order_by(key, "-id")
    else:
        oldest_first = order == "oldest"
        page = jobs.filter(**{"pk__gt" if oldest_first else "pk__lt": before}) if before else jobs
        page = page.order_by("id" if oldest_first else "-id")
    return page.annotate(last_attempt=last_attempt_of_job(), resubmitted_as=LAST_RESUBMISSION)[:limit]


def summary_of_server() -> Subquery:
    """Of an attempt its server: its `id`, its `name`, and its state, SILENT if it is alive and not heard."""
    servers = servers_with_silence().filter(pk=OuterRef("server_id"))
    state = Case(When(silent=True, then=Value("SILENT")), default=F("state"), output_field=TextField())
    return Subquery(servers.values(summary=JSONObject(id="pk", name="name", state=state)), output_field=JSONField())


def holder_of_job() -> Subquery:
    """The server that has a job, as `summary_of_server()` has it."""
    live = Attempt.objects.filter(pk=OuterRef("attempt_id")).annotate(holder=summary_of_server())
    return Subquery(live.values("holder"), output_field=JSONField())


def last_attempt_of_job() -> Subquery:
    """The last attempt of a job: its `state`, its `server`, and for how many `seconds` its code ran, or runs."""
    last = Attempt.objects.filter(job=OuterRef("pk")).order_by("-number").annotate(holder=summary_of_server())
    summary = last.values(summary=JSONObject(state="state", server="holder", seconds=seconds_of_attempt()))[:1]
    return Subquery(summary, output_field=JSONField())


RAN = "extract(epoch from %(expressions)s)::float8"


def seconds_of_attempt() -> Func:
    """For how long the code of an attempt ran, or runs."""
    return Func(
        Coalesce("finished_at", ClockTimestamp()), F("started_at"), template=RAN, arg_joiner=" - ",
        output_field=FloatField(),
    )  # fmt: skip


def seconds_of_job() -> Case:
    """The same of the last attempt of a job; none of one that waits."""
    last = Attempt.objects.filter(job=OuterRef("pk")).order_by("-number").values(seconds=seconds_of_attempt())[:1]
    has_run = Q(state__in=states.LIVE | states.TERMINAL)
    return Case(When(has_run, then=Subquery(last, output_field=FloatField())), output_field=FloatField())


SORT_KEYS: dict[str, Callable[[], Any]] = {"longest": seconds_of_job, "priority": lambda: F("priority")}
"""What jobs are sorted by where it is not their age; no index has it."""


def job_counts_by_state(jobs: QuerySet[WorkerJob]) -> dict[str, int]:
    """How many of these jobs there are in each state."""
    return dict(jobs.order_by().values_list("state").annotate(count=Count("pk")))


def jobs_visible_to(owner: UUID | None) -> QuerySet[WorkerJob]:
    """Jobs as `jobs_with_attempts()` has them, of one owner or (None) of all."""
    return jobs_with_attempts() if owner is None else jobs_with_attempts().filter(owner=owner)


def job_placement(job: UUID, owner: UUID | None) -> dict[str, Any]:
    """Which alive servers may have a waiting job, the least loaded first, what rules out the others, and why it stands
    still, `flags`: one query.

    Raises JobUnknown and JobNotWaiting.
    """
    rows, flagged = fetch_result_sets(
        sql.read_placement, sql.read_flags, job=job, owner=owner, only=[job], scan_limit=None,
        staleness_multiplier=liveness_conf().staleness_multiplier, **unmatched_parameters(),
    )  # fmt: skip
    if not rows:
        raise JobUnknown
    state, until = rows[0].state, rows[0].waits_until
    if state != JobState.PENDING:
        raise JobNotWaiting(f"This job is {state}; only a PENDING one has candidates.", state=state)
    eligible: list[dict[str, Any]] = []
    ruled_out: list[dict[str, Any]] = []
    for row in rows:
        server = {"id": row.server, "name": row.name}
        if row.server is None:
            continue
        if row.filter is None:
            is_least_loaded = not eligible or row.load == eligible[0]["load"]
            eligible.append({"server": server, "load": row.load, "hint": "first" if is_least_loaded else "later"})
        else:
            ruled_out.append({"server": server, "filter": row.filter, "detail": row.detail})
    waiting_for: dict[str, Any] | None = None
    if rows[0].stops_on is not None:
        waiting_for = {"what": "stop", "until": None, "server": json.loads(rows[0].stops_on)}
    elif until is not None:
        waiting_for = {"what": "available_at", "until": until}
    flags = [row.flag for row in flagged]
    return {"eligible": eligible, "ruled_out": ruled_out, "waiting_for": waiting_for, "flags": flags}


def job_log_page(job: UUID, after: int, limit: int, attempt: int | None = None) -> list[WrittenLine]:
    """Lines that a job's code wrote, oldest first, those whose id is greater than `after`; maybe of one attempt."""
    return sql.read_log_page.fetch_rows(job=job, after=after, limit=limit, attempt=attempt)
