"""Reads for the API and the pages."""

import json
from collections.abc import Callable, Iterable, Sequence
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
from controlplane.core.statements import Statement, fetch_result_sets
from jobs import states
from jobs.conf import conf, unmatched_parameters
from jobs.errors import JobNotWaiting, JobUnknown
from jobs.history import Window
from jobs.models import Attempt, Execution, LateReport, WorkerJob
from jobs.models.jobs import IN_QUARANTINE
from jobs.scan_window import field_is_any_of
from jobs.sql import sql
from jobs.sql.rows import HistoryPoint, WrittenLine
from jobs.states import Flag, JobState, Unmatched
from liveness import selectors as liveness
from liveness.conf import conf as liveness_conf
from liveness.states import Subject

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


LARGE = 16 * 1024
"""Bytes, as JSON, beyond which a list leaves a field out."""


MUCH = 4 * 1024 * 1024
"""Bytes, as JSON, of what one answer holds of the contents of attempts, or of steps; the rest is left out."""


INSTEAD = {"action": "jsonb_build_object('type', {0} -> 'type')", "error": "jsonb_build_object('code', {0} -> 'code')"}


IS_LARGE = f"(pg_column_size({{0}}) > {LARGE} or octet_length({{0}}::text) > {LARGE})"  # the first unpacks nothing


LARGE_FIELDS = ("action", "payload", "output", "error", "checkpoint")


def content(field: str, is_left_out: str) -> dict[str, Func]:
    """A field of JSON as an answer has it, `FIELD_shown`, and whether it is left out, `FIELD_left_out`."""
    column, left_out = "%(expressions)s", f"({{0}} is not null and {is_left_out})"
    shown = f"case when {left_out} then {INSTEAD.get(field, 'null')} else {{0}} end"
    return {
        f"{field}_shown": Func(F(field), template=shown.format(column), output_field=JSONField()),
        f"{field}_left_out": Func(F(field), template=left_out.format(column), output_field=BooleanField()),
    }


def without_large(jobs: QuerySet[WorkerJob]) -> QuerySet[WorkerJob]:
    """Jobs without what is large of them, as lists have them; for `with_flags()`, which says what is left out."""
    shown: dict[str, Any] = {}
    for field in LARGE_FIELDS:
        shown |= content(field, IS_LARGE)
    return jobs.defer(*LARGE_FIELDS).annotate(**shown)


def put_in_place(rows: Iterable[Any], fields: Sequence[str]) -> None:
    """What was asked as `content()` stands where the field would, and `left_out` names what is not there."""
    for row in rows:
        asked = [field for field in fields if f"{field}_shown" in vars(row)]
        row.left_out = [field for field in asked if getattr(row, f"{field}_left_out")]
        for field in asked:
            setattr(row, field, getattr(row, f"{field}_shown"))


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


COUNT_LIMIT = 1_000
"""So many jobs of a state that has ended are counted; of more it is said about how many."""


def instance_figures(window: Window | None = None) -> dict[str, Any]:
    """How it stands, by the database's clock `now`: one query, which brings the points of a window's `history` too.

    `counts` of jobs by state, those `about` which only statistics tell, and for how many seconds the oldest waiting
    job could have been claimed, `waiting`; how many stand still, `flags` (of a set of tags so many are looked at as of
    a state are counted), these by their tags, `flagged_tags`, and by tags those that fail in so many `seconds` unless a
    worker comes, `to_be_failed`; what holds for the whole instance, `brakes` and `maintenance`; the rows that could not
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
        **unmatched_parameters(),
    }
    if window is None:
        points: list[HistoryPoint] = []
        [row], [incidents] = fetch_result_sets(sql.read_figures, sql.read_incidents, **params)
    else:
        params |= {"seconds": window.seconds, "step": window.step, "span": window.span}
        statements: list[Statement[Any]] = [sql.read_figures, sql.read_incidents, sql.read_history]
        [row], [incidents], points = tuple(fetch_result_sets(*statements, **params))
    read = {key: json.loads(value or "null") for key, value in row._asdict().items() if key in JSON_FIGURES}
    flags = {flag: (read["flags"] or {}).get(flag, 0) for flag in Flag}
    lately = {**incidents._asdict(), "incident": json.loads(incidents.incident or "null")}
    return {
        **row._asdict(),
        **read,
        "incidents": lately,
        "counts": read["counts"] or {},
        "about": read["about"] or [],
        "flags": flags,
        "history": points,
    }


JSON_FIGURES = {
    "counts", "about", "brakes", "maintenance", "flags", "flagged_tags", "to_be_failed", "rows_left_out",
}  # fmt: skip


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
    servers = liveness.servers_with_silence().filter(pk=OuterRef("server_id"))
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
            eligible.append({"server": server, "load": row.load})
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


LOG_TAIL = """(
    select jsonb_agg(
               jsonb_build_object(
                   'id', last.id, 'attempt', last.number, 'stream', last.stream, 'line', last.line,
                   'at', to_char(last.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'))
               order by last.id)
      from (select l.*
              from (select id, number from jobs_attempt where job_id = %(expressions)s) a
             cross join lateral (
                   select l.id, a.number, l.stream, l.line, l.at from jobs_logline l
                    where l.attempt_id = a.id order by l.id desc limit %(limit)s
                   ) l
             order by l.id desc limit %(limit)s) last)"""


SUPERSEDED_REPORTS = """(
    select coalesce(jsonb_agg(jsonb_build_object(
               'number', a.number, 'server', s.name, 'event', l.event, 'reason', l.reason, 'more', l.more,
               'code', l.body -> 'error' ->> 'code', 'message', left(l.body -> 'error' ->> 'message', 2000),
               'traceback', right(l.body -> 'error' ->> 'traceback', 4000), 'why', left(l.body ->> 'reason', 2000),
               'output', left(jsonb_pretty(nullif(l.body -> 'output', 'null')), 4000),
               'at', to_char(l.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')) order by l.id), '[]')
      from jobs_latereport l join jobs_attempt a on a.id = l.attempt_id join liveness_server s on s.id = a.server_id
     where l.job_id = %(expressions)s)"""


def job_details(job: UUID, lines: int) -> DetailedJob | None:
    """A job with its attempts as the page of one tells of it: with the last lines it wrote, `log`, the reports that
    were refused, `superseded_reports`, what operators did to it, `operator_events`, and `now`;
    None when there is none."""
    attempts = Prefetch("attempts", Attempt.objects.select_related("server").order_by("number"))
    details = jobs_with_action_guards(WorkerJob.objects.prefetch_related(attempts)).annotate(
        now=ClockTimestamp(),
        superseded_reports=Func(F("pk"), template=SUPERSEDED_REPORTS, output_field=JSONField()),
        child_execution=CHILD_EXECUTION,
        resubmitted_as=LAST_RESUBMISSION,
        operator_events=liveness.operator_events(Subject.JOB),
    )
    detailed: Any = jobs_with_log(details, lines).filter(pk=job).first()
    return detailed


def jobs_with_log(jobs: QuerySet[WorkerJob], limit: int) -> QuerySet[WorkerJob]:
    """Jobs with the last lines that their code wrote, oldest first, `log`; None where there are none."""
    return jobs.annotate(log=Func(F("pk"), template=LOG_TAIL, limit=limit, output_field=JSONField()))
