"""Models of executions, dependencies of steps, and events of executions."""

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.fields.json import KT

from controlplane.core.model_fields import (
    ClockTimestamp,
    IsTrue,
    ObservedNow,
    Uuid7,
    build_transition_guards,
    check_one_of,
)
from jobs import states
from jobs.choices import OnDeadline
from jobs.states import EventCode, ExecutionState
from liveness.models import DEFAULT_NAMESPACE, ApiToken

EXECUTION_TERMINAL = sorted(states.EXECUTION_TERMINAL)
MISSED_DEADLINE = Q(state="CANCELLED", error__code="DEADLINE_MISSED")
"""Condition of a job or an execution that was cancelled at its deadline."""


class Execution(models.Model):
    """Run of several steps with dependencies between them."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    root_id = models.UUIDField(help_text="Root execution of its tree of children; often itself.")
    parent_step = models.OneToOneField(
        "WorkerJob", models.DO_NOTHING, null=True, db_constraint=False, related_name="child",
        help_text="Step that it is the run of.",
    )  # fmt: skip
    owner = models.ForeignKey(
        ApiToken, models.PROTECT, null=True, db_index=False, help_text="Null: a trigger started it."
    )
    namespace = models.TextField(
        db_default=DEFAULT_NAMESPACE, help_text="Only workers of this namespace get its steps."
    )
    trigger = models.ForeignKey("Trigger", models.SET_NULL, null=True, related_name="executions")
    rerun_of = models.ForeignKey("self", models.DO_NOTHING, null=True, db_constraint=False, db_index=False)
    name = models.TextField()
    key = models.TextField(null=True)
    fingerprint = models.BinaryField(help_text="SHA-256 of the submitted content.")
    definition = models.JSONField(help_text="Submitted content.")
    inputs = models.JSONField(db_default={}, help_text="Payload of all steps that have none.")

    outputs_from = models.JSONField(
        null=True, help_text="`paths`: path of each output by JSON pointer, null if it is hidden. `reads`: their steps."
    )
    outputs = models.JSONField(null=True, help_text="Values of its outputs at its end.")
    loop = models.JSONField(
        null=True,
        help_text="Loop whose items its steps are: `step`, `fail_fast`, `max_parallel`. Null for other executions.",
    )

    state = models.TextField(db_default=ExecutionState.RUNNING.value)
    sealed = models.BooleanField(db_default=True, help_text="False: it is open, so steps may be added.")
    open_steps = models.IntegerField(help_text="Number of steps whose end has no effect yet. Hooks do not count.")
    passed_on = models.BooleanField(db_default=False, help_text="True: its end has ended its parent step.")
    timeout_seconds = models.FloatField(null=True)
    deadline_seconds = models.FloatField(null=True)
    deadline_at = models.DateTimeField(null=True, help_text="Its creation and `deadline_seconds`.")
    on_deadline = models.TextField(null=True, help_text="Null: it has no deadline.")
    notify = models.JSONField(null=True, help_text="Addresses that get a notification of its end, each with states.")
    trigger_chain = ArrayField(
        models.UUIDField(), db_default=[], help_text="Trigger that started it, after those that led to its signal."
    )
    started_observed = models.FloatField(db_default=ObservedNow())
    limits = models.JSONField(null=True, help_text="Slots that it holds from its start to its end, by key.")
    parked_by = models.JSONField(null=True, help_text="`limit` with its key, until it starts. Null: it has started.")
    cancel_requested_at = models.DateTimeField(null=True)
    error = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        permissions = [
            ("cancel_execution", "Can cancel executions"),
            ("rerun_execution", "Can run executions again"),
            ("answer_execution", "Can answer approvals"),
            ("seal_execution", "Can seal open executions"),
        ]
        constraints = [
            check_one_of("state", ExecutionState, "execution_state"),
            check_one_of("on_deadline", OnDeadline, "execution_on_deadline"),
            models.UniqueConstraint(fields=["owner", "key"], condition=Q(key__isnull=False), name="execution_key_once"),
            models.CheckConstraint(
                condition=Q(state__in=EXECUTION_TERMINAL, finished_at__isnull=False)
                | (~Q(state__in=EXECUTION_TERMINAL) & Q(finished_at__isnull=True)),
                name="execution_finished_at_its_end",
            ),
        ]
        indexes = [
            models.Index(fields=["root_id"], name="execution_of_tree"),
            models.Index(fields=["owner", "id"], name="execution_of_owner"),
            models.Index(fields=["state", "id"], name="execution_by_state"),
            models.Index(fields=["name", "id"], name="execution_by_name"),
            models.Index(
                KT("parked_by__limit"),
                "namespace",
                "id",
                name="execution_parked",
                condition=Q(IsTrue(Q(state=ExecutionState.RUNNING, parked_by__isnull=False))),
            ),
            models.Index(fields=["id"], name="execution_not_over", condition=~Q(state__in=EXECUTION_TERMINAL)),
            models.Index(
                F("started_observed") + F("timeout_seconds"),
                name="execution_timeout",
                condition=Q(state=ExecutionState.RUNNING, timeout_seconds__isnull=False),
            ),
            models.Index(
                fields=["deadline_at"],
                name="execution_deadline",
                condition=Q(finished_at__isnull=True, deadline_at__isnull=False),
            ),
            models.Index(fields=["finished_at"], name="execution_missed_deadline", condition=MISSED_DEADLINE),
            models.Index(
                fields=["root_id"],
                name="execution_to_pass_on",
                condition=Q(state__in=EXECUTION_TERMINAL, passed_on=False, parent_step__isnull=False),
            ),
        ]
        triggers = [
            *build_transition_guards(states.legal_transitions(states.EXECUTION_TRANSITIONS), states.EXECUTION_INITIAL),
            # Jobs and other executions may start now, if a waiting execution ends or waits for another key.
            pgtrigger.Trigger(
                name="recheck_limits",
                operation=pgtrigger.UpdateOf("state", "parked_by"),
                when=pgtrigger.After,
                condition=pgtrigger.Condition(
                    "OLD.state = 'RUNNING' AND (NEW.state <> 'RUNNING' AND OLD.parked_by IS NOT NULL"
                    " OR NEW.parked_by <> OLD.parked_by)"
                ),
                func="INSERT INTO jobs_limitrecheck (key) SELECT DISTINCT key FROM (VALUES (OLD.parked_by ->> 'limit'),"
                " (NEW.parked_by ->> 'limit')) AS keys (key) WHERE key IS NOT NULL; RETURN NULL;",
            ),
            pgtrigger.Trigger(
                name="notify_end",
                operation=pgtrigger.UpdateOf("state"),
                when=pgtrigger.After,
                condition=pgtrigger.Condition(
                    "NEW.notify IS NOT NULL AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL"
                ),
                func="PERFORM notify_execution_end(NEW); RETURN NULL;",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class StepDependency(models.Model):
    """Dependency: a step of an execution waits for another."""

    pk = models.CompositePrimaryKey("depends_on_id", "step_id")
    depends_on = models.ForeignKey(
        "WorkerJob", models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    step = models.ForeignKey("WorkerJob", models.DO_NOTHING, db_constraint=False, related_name="dependencies")

    def __str__(self) -> str:
        return f"{self.step_id} after {self.depends_on_id}"


class ExecutionEvent(models.Model):
    """Action of the control plane itself in an execution."""

    at = models.DateTimeField(db_default=ClockTimestamp())
    execution = models.ForeignKey(Execution, models.CASCADE, related_name="events", db_index=False)
    code = models.TextField()
    step = models.TextField(null=True)
    server_id = models.UUIDField(null=True)
    line = models.TextField(help_text="Text for people.")

    class Meta:
        ordering = ["id"]
        constraints = [check_one_of("code", EventCode, "executionevent_code")]
        indexes = [models.Index(fields=["execution", "id"], name="executionevent_of_execution")]

    def __str__(self) -> str:
        return self.line
