"""Reads of executions and their steps for the API and the pages."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
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
from jobs.errors import ExecutionUnknown, JobUnknown
from jobs.models import Attempt, Execution, ExecutionEvent, WorkerJob
from jobs.selectors.attempts import holder_of_job
from jobs.selectors.contents import MUCH, content, put_in_place
from liveness.models import Server
from liveness.selectors.events import action_events
from liveness.states import Subject

COUNTS = """(select coalesce(jsonb_object_agg(state, steps), '{}')
               from (select state, count(*) as steps from jobs_workerjob
                      where execution_id = %(expressions)s and not is_hook group by state) counted)"""

# Each by its key: joined, all jobs would be read for each step where statistics know of none yet.
DEPENDS_ON = """array(
    select needed.step
      from jobs_stepdependency d
     cross join lateral (select j.step, j.position from jobs_workerjob j where j.id = d.depends_on_id offset 0) needed
     where d.step_id = %(expressions)s
     order by needed.position)"""

MUCH_BEFORE = f"""sum(coalesce(octet_length(output::text), 0) + coalesce(octet_length(error::text), 0))
                   over (order by position) > {MUCH}"""

CONTENTS = content("output", MUCH_BEFORE) | content("error", MUCH_BEFORE)
"""Outputs and errors of steps, the first of them, as many as one answer holds."""


class CountedExecution(Execution):
    """What `visible_executions()` knows of an execution, for whoever reads it; never stored."""

    counts: dict[str, int]
    parent: dict[str, Any] | None
    now: datetime

    class Meta:
        abstract = True


class Step(WorkerJob):
    """What `execution_steps()` knows of a job that is a step, for whoever reads it; never stored."""

    step: str
    depends_on: list[str | None]
    child_execution: UUID | None
    server: dict[str, Any] | None

    class Meta:
        abstract = True


def visible_executions(owner: UUID | None = None) -> QuerySet[Execution]:
    """Executions of one owner or (None) of all, with `counts` of their steps by state, their `parent`, and `now`."""
    parent = WorkerJob.objects.filter(pk=OuterRef("parent_step_id")).values(
        summary=JSONObject(job="pk", execution="execution_id", step="step")
    )
    reached = Execution.objects.all() if owner is None else Execution.objects.filter(owner=owner)
    return reached.defer("definition", "fingerprint").annotate(
        counts=Func(F("pk"), template=COUNTS, output_field=JSONField()),
        parent=Subquery(parent, output_field=JSONField()),
        now=ClockTimestamp(),
    )


def execution_with_steps(id: UUID, owner: UUID | None = None) -> Execution:
    """An execution as `visible_executions()` has it, with `own_steps` and `hooks` as `execution_steps()` has them.

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
    row.hooks = [step for step in all_steps if step.is_hook]
    return row


def execution_steps(execution: UUID) -> QuerySet[WorkerJob]:
    """The steps of an execution, hooks last, with the keys that they depend on, `depends_on`, their `child`, and the
    `server` that has them."""
    child = Execution.objects.filter(parent_step=OuterRef("pk")).values("pk")
    return (
        WorkerJob.objects.filter(execution=execution)
        .defer("payload", "checkpoint", "fingerprint")
        .annotate(
            depends_on=Func(F("pk"), template=DEPENDS_ON, output_field=ArrayField(TextField())),
            child_execution=Subquery(child, output_field=UUIDField()),
            server=holder_of_job(),
        )
        .order_by("position")
    )


def step_job_id(execution: UUID, key: str, owner: UUID | None = None) -> UUID:
    """The job that a step is. Raises ExecutionUnknown and JobUnknown."""
    if not visible_executions(owner).filter(pk=execution).exists():
        raise ExecutionUnknown
    own = WorkerJob.objects.filter(execution=execution, step=key).values_list("pk", flat=True)
    job = None if "\0" in key else own.first()
    if job is None:
        raise JobUnknown(f"This execution has no step {key!r}.")
    return job


def execution_events(execution: UUID, after: int, limit: int) -> QuerySet[ExecutionEvent]:
    """What the control plane did in an execution, oldest first, those whose id is greater than `after`."""
    return ExecutionEvent.objects.filter(execution=execution, pk__gt=after).order_by("pk")[:limit]


def executions_page(some: QuerySet[Execution], before: UUID | None, limit: int) -> QuerySet[Execution]:
    """Executions, latest first."""
    page = some.filter(pk__lt=before) if before else some
    return page.order_by("-pk")[:limit]


def execution_summary(id: UUID, events: int) -> Execution:
    """An execution as `visible_executions()` has it, without its steps, and with what was done to it,
    `action_events`, and so much of what the control plane did in it, `latest_events`. Raises ExecutionUnknown."""
    name = Subquery(Server.objects.filter(pk=OuterRef("server_id")).values("name"))
    latest = ExecutionEvent.objects.filter(execution=OuterRef("pk")).order_by("-pk").annotate(server_name=name)
    fields = {field: field for field in ("at", "code", "step", "line", "server_id", "server_name")}
    row = (
        visible_executions()
        .annotate(
            action_events=action_events(Subject.EXECUTION),
            latest_events=ArraySubquery(latest.values(event=JSONObject(**fields))[:events]),
        )
        .filter(pk=id)
        .first()
    )
    if row is None:
        raise ExecutionUnknown
    return row


def steps_in_detail(execution: UUID, jobs: Collection[UUID]) -> dict[UUID, Any]:
    """Some steps as `execution_steps()` has them, with their attempts, and instead of their outputs whether they have
    one, `has_output`."""
    attempts = Prefetch("attempts", Attempt.objects.select_related("server").order_by("number"))
    has_output = ExpressionWrapper(Q(output__isnull=False), output_field=BooleanField())
    steps = execution_steps(execution).filter(pk__in=jobs).annotate(has_output=has_output)
    return steps.defer("output", "payload", "checkpoint", "fingerprint").prefetch_related(attempts).in_bulk()
