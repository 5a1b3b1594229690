"""Selectors of executions and their steps, for the API and the pages."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db.models import (
    BooleanField,
    ExpressionWrapper,
    F,
    Func,
    JSONField,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    TextField,
    UUIDField,
)
from django.db.models.functions import JSONObject

from controlplane.core.model_fields import ClockTimestamp
from jobs import states
from jobs.choices import HookOf
from jobs.errors import JobUnknown
from jobs.execution_errors import ExecutionUnknown
from jobs.models import Attempt, Execution, ExecutionEvent, WorkerJob
from jobs.selectors.attempts import holder_of_job
from jobs.selectors.contents import MUCH, content, put_in_place
from jobs.states import JobState
from liveness.models import Server
from liveness.selectors.events import action_events
from liveness.states import Subject

COUNTS = """(select coalesce(jsonb_object_agg(state, steps), '{}')
               from (select state, count(*) as steps from jobs_workerjob
                      where execution_id = %(expressions)s and not is_hook group by state) counted)"""

# `offset 0` looks up each row by its key. A join would read all jobs for each step while there are no statistics.
HELD_BACK = """(select coalesce(jsonb_agg(jsonb_build_object(
                          'job', j.id, 'step', j.step, 'server', s.id, 'name', s.name) order by j.position), '[]')
                  from jobs_workerjob j
                  join jobs_takenattempt t on t.job_id = j.id and t.had_begun
                  join liveness_server s on s.id = t.server_id
                 where j.execution_id = %(expressions)s and j.finished_at is not null and not j.passed_on)"""

DEPENDS_ON = """array(
    select needed.step
      from jobs_stepdependency d
     cross join lateral (select j.step, j.position from jobs_workerjob j where j.id = d.depends_on_id offset 0) needed
     where d.step_id = %(expressions)s
     order by needed.position)"""

PROGRESS = """(select jsonb_build_object(
                          'total', count(j.id), 'done', count(j.id) filter (where j.state = 'COMPLETED'),
                          'failed', count(j.id) filter (where j.finished_at is not null and j.state <> 'COMPLETED'))
                   from jobs_execution c left join jobs_workerjob j on j.execution_id = c.id
                  where c.parent_step_id = %(expressions)s and c.loop is not null
                  group by c.id)"""

MUCH_BEFORE = f"""sum(coalesce(octet_length(output::text), 0) + coalesce(octet_length(error::text), 0))
                   over (order by position) > {MUCH}"""

CONTENTS = content("output", MUCH_BEFORE) | content("error", MUCH_BEFORE)
"""Outputs and errors of the first steps, up to the size limit of a response."""


class CountedExecution(Execution):
    """Type of the rows of `visible_executions()`. Never stored."""

    counts: dict[str, int]
    parent: dict[str, Any] | None
    now: datetime

    class Meta:
        abstract = True


class Step(WorkerJob):
    """Type of the rows of `execution_steps()`. Never stored."""

    step: str
    depends_on: list[str | None]
    child_execution: UUID | None
    progress: dict[str, int] | None
    server: dict[str, Any] | None

    class Meta:
        abstract = True


def visible_executions(owner: UUID | None = None) -> QuerySet[Execution]:
    """Return the executions of one owner (None: all), with `counts` of steps by state, their `parent`, and `now`."""
    counts = Func(F("pk"), template=COUNTS, output_field=JSONField())
    return uncounted_executions(owner).annotate(counts=counts)


def uncounted_executions(owner: UUID | None = None) -> QuerySet[Execution]:
    parent = WorkerJob.objects.filter(pk=OuterRef("parent_step_id")).values(
        summary=JSONObject(job="pk", execution="execution_id", step="step")
    )
    reached = Execution.objects.all() if owner is None else Execution.objects.filter(owner=owner)
    return reached.defer("definition", "fingerprint").annotate(
        parent=Subquery(parent, output_field=JSONField()),
        now=ClockTimestamp(),
    )


class ExecutionProgress(NamedTuple):
    """Number of steps of an execution."""

    total: int
    done: int
    failed: int


def measure_progress(execution: CountedExecution) -> ExecutionProgress:
    """Return how many steps an execution of `visible_executions()` has, and how many have ended or failed."""
    counts = execution.counts
    done = sum(counts.get(state, 0) for state in states.TERMINAL)
    return ExecutionProgress(
        sum(counts.values()), done, counts.get(JobState.FAILED, 0) + counts.get(JobState.EXPIRED, 0)
    )


def is_past_deadline(execution: CountedExecution) -> bool:
    """Return True if an execution of `visible_executions()` has not ended, and its deadline has passed."""
    deadline = execution.deadline_at
    return deadline is not None and execution.finished_at is None and deadline <= execution.now


def execution_with_steps(id: UUID, owner: UUID | None = None) -> Execution:
    """Return an execution as in `visible_executions()`, with its `own_steps` and hooks.

    The steps are as in `execution_steps()`. The hooks are in `on_error`, `on_success` and `on_complete`.
    Raises ExecutionUnknown.
    """
    row: Any = visible_executions(owner).filter(pk=id).first()
    if row is None:
        raise ExecutionUnknown
    all_steps = list(
        execution_steps(id).defer("output", "error", "payload", "checkpoint", "fingerprint").annotate(**CONTENTS)
    )
    put_in_place(all_steps, ["output", "error"])
    row.own_steps = [step for step in all_steps if not step.is_hook]
    for name in HookOf:
        setattr(row, name, [step for step in all_steps if step.hook == name])
    return row


def execution_steps(execution: UUID) -> QuerySet[WorkerJob]:
    """Return the steps and hooks of an execution by their position.

    Each has the keys of the steps it depends on (`depends_on`), its `child_execution`, the `progress` of its items if
    it is a loop, and the `server` that holds it.
    """
    child = Execution.objects.filter(parent_step=OuterRef("pk")).values("pk")
    return (
        WorkerJob.objects.filter(execution=execution)
        .defer("payload", "checkpoint", "fingerprint", "definition")
        .annotate(
            depends_on=Func(F("pk"), template=DEPENDS_ON, output_field=ArrayField(TextField())),
            child_execution=Subquery(child, output_field=UUIDField()),
            progress=Func(F("pk"), template=PROGRESS, output_field=JSONField()),
            server=holder_of_job(),
        )
        .order_by("position")
    )


def step_job_id(execution: UUID, key: str, owner: UUID | None = None) -> UUID:
    """Return the id of the job that stands for a step. Raises ExecutionUnknown and JobUnknown."""
    if not visible_executions(owner).filter(pk=execution).exists():
        raise ExecutionUnknown
    own = WorkerJob.objects.filter(execution=execution, step=key).values_list("pk", flat=True)
    job = None if "\0" in key else own.first()
    if job is None:
        raise JobUnknown(f"This execution has no step {key!r}.")
    return job


def execution_events(execution: UUID, after: int, limit: int) -> QuerySet[ExecutionEvent]:
    """Return events of an execution with an id above `after`, oldest first."""
    return ExecutionEvent.objects.filter(execution=execution, pk__gt=after).order_by("pk")[:limit]


def executions_page(some: QuerySet[Execution], before: UUID | None, limit: int) -> QuerySet[Execution]:
    """Return a page of executions, latest first."""
    page = some.filter(pk__lt=before) if before else some
    return page.order_by("-pk")[:limit]


def execution_summary(id: UUID, events: int) -> Execution:
    """Return an execution as in `visible_executions()`, without `counts` and its steps. Raises ExecutionUnknown.

    `action_events` are the actions of people, `latest_events` the latest events of the control plane. `held_back` are
    ended steps whose code may still run, each with its server.
    """
    name = Subquery(Server.objects.filter(pk=OuterRef("server_id")).values("name"))
    latest = ExecutionEvent.objects.filter(execution=OuterRef("pk")).order_by("-pk").annotate(server_name=name)
    fields = {field: field for field in ("at", "code", "step", "line", "server_id", "server_name")}
    row = (
        uncounted_executions()
        .annotate(
            action_events=action_events(Subject.EXECUTION),
            held_back=Func(F("pk"), template=HELD_BACK, output_field=JSONField()),
            latest_events=ArraySubquery(latest.values(event=JSONObject(**fields))[:events]),
        )
        .filter(pk=id)
        .first()
    )
    if row is None:
        raise ExecutionUnknown
    return row


SHOWN = ["step", "state", "position", "is_hook", "hook", "is_kept", "restart_of_id", "action", "error", "wait",
         "attempt_count", "available_at", "finished_at"]  # fmt: skip
SHOWN_OF_ATTEMPT = ["job", "number", "state", "reason", "claimed_at", "started_at", "finished_at", "server__name"]


def steps_in_detail(execution: UUID, jobs: Collection[UUID]) -> dict[UUID, Any]:
    """Return some steps as in `execution_steps()`, with their attempts, and `has_output` instead of their outputs.

    Django takes longer for each row with each field, so only those that the page shows are loaded.
    """
    attempts = Attempt.objects.select_related("server").only(*SHOWN_OF_ATTEMPT).order_by("number")
    has_output = ExpressionWrapper(Q(output__isnull=False), output_field=BooleanField())
    steps = execution_steps(execution).filter(pk__in=jobs).annotate(has_output=has_output).only(*SHOWN)
    return steps.prefetch_related(Prefetch("attempts", attempts)).in_bulk()
