"""Executions and triggers, worker jobs, their attempts, and the reports that came too late.

What becomes of a job is decided on its own row, under its lock; attempts are what happened. What becomes of an
execution, and of its steps without an attempt (BLOCKED, or running a child), is decided under the lock of the root of
its tree (jobs/services/cascade.py).
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from controlplane.schema import ClockTimestamp, ObservedNow, Uuid7, guard, one_of
from jobs import states
from jobs.states import (
    AttemptState,
    EventCode,
    ExecutionState,
    JobKind,
    JobState,
    Missed,
    OnWorkerLost,
    RetryBackoff,
    SlotOutcome,
    Unmatched,
)
from liveness.models import ApiToken, Server

TERMINAL = sorted(states.TERMINAL)
LIVE = sorted(states.LIVE)
INTERRUPTED = sorted(states.INTERRUPTED)
OVER = sorted(states.OVER)
IN_QUARANTINE = Q(state=JobState.FAILED, error__code__in=states.QUARANTINED, dismissed_at__isnull=True)


class Execution(models.Model):
    """A run of several steps with dependencies between them."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    root_id = models.UUIDField(help_text="The execution that began the tree of children it is in; often itself.")
    parent_step = models.OneToOneField(
        "WorkerJob", models.DO_NOTHING, null=True, db_constraint=False, related_name="child",
        help_text="The step that it is the run of.",
    )  # fmt: skip
    owner = models.ForeignKey(ApiToken, models.PROTECT, null=True, db_index=False, help_text="Null: a trigger's.")
    trigger = models.ForeignKey("Trigger", models.SET_NULL, null=True, related_name="executions")
    rerun_of = models.ForeignKey("self", models.DO_NOTHING, null=True, db_constraint=False, db_index=False)
    name = models.TextField()
    key = models.TextField(null=True)
    fingerprint = models.BinaryField(help_text="SHA-256 of what was submitted.")
    definition = models.JSONField(help_text="What was submitted.")
    inputs = models.JSONField(db_default={}, help_text="The payload of the steps that have none.")

    state = models.TextField(db_default=ExecutionState.RUNNING.value)
    open_steps = models.IntegerField(help_text="Steps whose end has not been passed on. Hooks do not count.")
    passed_on = models.BooleanField(db_default=False, help_text="Its end has ended the step it is the run of.")
    timeout_seconds = models.FloatField(null=True)
    started_observed = models.FloatField(db_default=ObservedNow())
    cancel_requested_at = models.DateTimeField(null=True)
    error = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        permissions = [
            ("cancel_execution", "Can cancel executions"),
            ("rerun_execution", "Can run executions again"),
        ]
        constraints = [
            one_of("state", ExecutionState, "execution_state"),
            models.UniqueConstraint(fields=["owner", "key"], condition=Q(key__isnull=False), name="execution_key_once"),
            models.CheckConstraint(
                condition=Q(state__in=OVER, finished_at__isnull=False)
                | (~Q(state__in=OVER) & Q(finished_at__isnull=True)),
                name="execution_finished_at_its_end",
            ),
        ]
        indexes = [
            models.Index(fields=["root_id"], name="execution_of_tree"),
            models.Index(fields=["owner", "id"], name="execution_of_owner"),
            models.Index(fields=["id"], name="execution_not_over", condition=~Q(state__in=OVER)),
            models.Index(
                fields=["root_id"],
                name="execution_to_pass_on",
                condition=Q(state__in=OVER, passed_on=False, parent_step__isnull=False),
            ),
        ]
        triggers = guard(states.pairs(states.EXECUTION_TRANSITIONS), states.EXECUTION_INITIAL)

    def __str__(self) -> str:
        return self.name


class WorkerJobQuerySet(models.QuerySet["WorkerJob"]):
    def quarantined(self) -> "WorkerJobQuerySet":
        return self.filter(IN_QUARANTINE)


class WorkerJob(models.Model):
    """A task or a trigger that a worker executes."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    kind = models.TextField(db_default=JobKind.TASK.value)
    state = models.TextField(db_default=JobState.PENDING.value)
    attempt_id = models.UUIDField(null=True, help_text="The live attempt.")
    owner = models.ForeignKey(ApiToken, models.PROTECT, null=True, db_index=False, help_text="Null: a trigger's.")
    key = models.TextField(null=True)
    fingerprint = models.BinaryField(help_text="SHA-256 of what was submitted.")

    execution = models.ForeignKey(Execution, models.CASCADE, null=True, related_name="steps", db_index=False)
    step = models.TextField(null=True, help_text="Its key in its execution.")
    position = models.IntegerField(null=True, help_text="Its place in the definition; hooks come last.")
    is_hook = models.BooleanField(db_default=False, help_text="It runs only when its execution has failed.")
    continue_on_failure = models.BooleanField(db_default=False, help_text="What depends on it runs all the same.")
    waits_for = models.IntegerField(db_default=0, help_text="Steps that it depends on and whose end it has not heard.")
    passed_on = models.BooleanField(db_default=False, help_text="Its end has moved its execution, or its trigger, on.")

    action = models.JSONField()
    payload = models.JSONField(null=True)
    tags = ArrayField(models.TextField(), db_default=[])
    required_tags = ArrayField(models.TextField(), db_default=[])
    priority = models.IntegerField(db_default=0)
    timeout_seconds = models.FloatField(null=True)
    on_worker_lost = models.TextField(db_default=OnWorkerLost.RESUBMIT.value)
    unmatched = models.TextField(db_default=Unmatched.FAIL.value)
    max_retries = models.IntegerField(db_default=0)
    retry_delay_seconds = models.FloatField(db_default=0)
    retry_backoff = models.TextField(db_default=RetryBackoff.FIXED.value)
    retry_on = ArrayField(models.TextField(), null=True, help_text="Codes; null: every error of the job's own code.")
    good_until = models.DateTimeField(null=True, help_text="EXPIRED unless it was claimed by then.")
    resubmission_of = models.ForeignKey(
        "self", models.DO_NOTHING, null=True, db_constraint=False, db_index=False, help_text="The ended job it repeats."
    )
    refused_by = ArrayField(models.UUIDField(), db_default=[], help_text="Servers that may not run it.")

    attempt_count = models.IntegerField(db_default=0)
    resubmissions = models.IntegerField(db_default=0, help_text="Losses it came back from.")
    retries = models.IntegerField(db_default=0)
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_observed = models.FloatField(null=True)
    pending_observed = models.FloatField(db_default=ObservedNow(), help_text="When it last began to wait.")
    output = models.JSONField(null=True)
    error = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    available_at = models.DateTimeField(db_default=ClockTimestamp())
    finished_at = models.DateTimeField(null=True)
    dismissed_at = models.DateTimeField(null=True, help_text="When somebody was done with it in quarantine.")

    objects = WorkerJobQuerySet.as_manager()

    class Meta:
        permissions = [
            ("cancel_workerjob", "Can cancel jobs"),
            ("resubmit_workerjob", "Can resubmit jobs"),
            ("fail_workerjob", "Can fail jobs"),
            ("dismiss_workerjob", "Can dismiss jobs from quarantine"),
            ("recover_workerjob", "Can recover stale attempts by hand"),
        ]
        constraints = [
            one_of("state", JobState, "job_state"),
            one_of("kind", JobKind, "job_kind"),
            one_of("on_worker_lost", OnWorkerLost, "job_on_worker_lost"),
            one_of("unmatched", Unmatched, "job_unmatched"),
            one_of("retry_backoff", RetryBackoff, "job_retry_backoff"),
            models.UniqueConstraint(fields=["owner", "key"], condition=Q(key__isnull=False), name="job_key_once"),
            models.CheckConstraint(
                condition=Q(state__in=TERMINAL, finished_at__isnull=False)
                | (~Q(state__in=TERMINAL) & Q(finished_at__isnull=True)),
                name="job_finished_at_its_end",
            ),
            models.CheckConstraint(
                condition=Q(state__in=LIVE, attempt_id__isnull=False)
                | (~Q(state__in=LIVE) & Q(attempt_id__isnull=True))
                | Q(state=JobState.RUNNING, attempt_id__isnull=True, action__type="execution"),
                name="job_held_while_live",
            ),
            models.UniqueConstraint(
                fields=["execution", "step"], condition=Q(execution__isnull=False), name="job_step_once"
            ),
        ]
        indexes = [
            # Claims read it once per set of required tags: nothing they may not have stands in their way.
            models.Index(
                "required_tags",
                F("priority").desc(),
                "available_at",
                "id",
                name="job_to_claim",
                condition=Q(state=JobState.PENDING),
            ),
            models.Index(fields=["owner", "id"], name="job_of_owner"),
            models.Index(fields=["state", "id"], name="job_by_state"),
            models.Index(fields=["available_at"], name="job_waiting", condition=Q(state=JobState.PENDING)),
            models.Index(fields=["id"], name="job_of_trigger", condition=Q(kind=JobKind.TRIGGER)),
            models.Index(
                fields=["good_until"],
                name="job_good_until",
                condition=Q(state=JobState.PENDING, good_until__isnull=False),
            ),
            models.Index(
                fields=["execution"],
                name="job_to_pass_on",
                condition=Q(state__in=TERMINAL, passed_on=False)
                & (Q(execution__isnull=False) | Q(kind=JobKind.TRIGGER)),
            ),
            models.Index(fields=["execution"], name="job_blocked", condition=Q(state=JobState.BLOCKED)),
            models.Index(fields=["id"], name="job_in_quarantine", condition=IN_QUARANTINE),
        ]
        triggers = guard(states.pairs(states.JOB_TRANSITIONS), states.JOB_INITIAL)

    def __str__(self) -> str:
        return str(self.id)


class StepDependency(models.Model):
    """A step of an execution waits for another."""

    pk = models.CompositePrimaryKey("depends_on_id", "step_id")
    depends_on = models.ForeignKey(WorkerJob, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    step = models.ForeignKey(WorkerJob, models.DO_NOTHING, db_constraint=False, related_name="dependencies")

    def __str__(self) -> str:
        return f"{self.step_id} after {self.depends_on_id}"


class ExecutionEvent(models.Model):
    """What the control plane itself did in an execution."""

    at = models.DateTimeField(db_default=ClockTimestamp())
    execution = models.ForeignKey(Execution, models.CASCADE, related_name="events", db_index=False)
    code = models.TextField()
    step = models.TextField(null=True)
    server_id = models.UUIDField(null=True)
    line = models.TextField(help_text="For people.")

    class Meta:
        ordering = ["id"]
        constraints = [one_of("code", EventCode, "executionevent_code")]
        indexes = [models.Index(fields=["execution", "id"], name="executionevent_of_execution")]

    def __str__(self) -> str:
        return self.line


class Trigger(models.Model):
    """Has a job evaluated at each slot of its schedule; the job's output says whether an execution starts."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    name = models.TextField(unique=True)
    cron = models.TextField(null=True, blank=True)
    interval_seconds = models.FloatField(null=True, blank=True)
    timezone = models.TextField(default="UTC")
    action = models.JSONField()
    payload = models.JSONField(null=True, blank=True)
    tags = ArrayField(models.TextField(), db_default=[], blank=True)
    enabled = models.BooleanField(default=True)
    missed = models.TextField(choices=[(m.value, m.value) for m in Missed], default=Missed.FIRE_ONCE.value)
    execution = models.JSONField(help_text="The execution it starts.")
    next_slot_at = models.DateTimeField(null=True, help_text="Null: none, it is not enabled.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [
            one_of("missed", Missed, "trigger_missed"),
            models.CheckConstraint(
                condition=Q(cron__isnull=True, interval_seconds__gt=0)
                | Q(cron__isnull=False, interval_seconds__isnull=True),
                name="trigger_has_one_schedule",
            ),
        ]
        permissions = [("evaluate_trigger", "Can have triggers evaluated now")]

    def __str__(self) -> str:
        return self.name


class TriggerSlot(models.Model):
    """A moment at which a trigger was due, and what came of it."""

    trigger = models.ForeignKey(Trigger, models.CASCADE, related_name="slots", db_index=False)
    slot = models.DateTimeField()
    outcome = models.TextField()
    by = models.TextField(db_default="", help_text="Who asked for it; empty: the schedule.")
    note = models.TextField(db_default="", help_text="For people.")
    job = models.OneToOneField(WorkerJob, models.DO_NOTHING, null=True, db_constraint=False, related_name="slot")
    execution = models.ForeignKey(
        Execution, models.DO_NOTHING, null=True, db_constraint=False, db_index=False, related_name="+"
    )

    class Meta:
        ordering = ["-slot"]
        constraints = [
            one_of("outcome", SlotOutcome, "triggerslot_outcome"),
            models.UniqueConstraint(fields=["trigger", "slot"], name="triggerslot_once"),
            models.UniqueConstraint(
                fields=["trigger"], condition=Q(outcome=SlotOutcome.EVALUATING), name="triggerslot_one_in_flight"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.slot}: {self.outcome}"


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def live(self) -> "AttemptQuerySet":
        return self.filter(state__in=LIVE)


class Attempt(models.Model):
    """One try of a job on one server; the live ones are the worker-job-running store."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    job = models.ForeignKey(WorkerJob, models.CASCADE, related_name="attempts", db_index=False)
    number = models.IntegerField()
    server = models.ForeignKey(Server, models.PROTECT, related_name="attempts", db_index=False)
    state = models.TextField(db_default=AttemptState.CLAIMED.value)
    request_id = models.UUIDField(null=True, help_text="Of the claim, so that it can be repeated.")
    claimed_at = models.DateTimeField(db_default=ClockTimestamp())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    alive_observed = models.FloatField(
        db_default=ObservedNow(),
        help_text="The observed clock at its last sign of life: its claim, start or heartbeat.",
    )
    started_observed = models.FloatField(null=True)
    pid = models.IntegerField(null=True)
    progress = models.FloatField(null=True, help_text="0 to 1.")
    message = models.TextField(db_default="")
    error = models.JSONField(null=True)
    ended_by = models.TextField(db_default="", help_text="server, liveness or operator:NAME")
    reason = models.TextField(db_default="")

    objects = AttemptQuerySet.as_manager()

    class Meta:
        constraints = [
            one_of("state", AttemptState, "attempt_state"),
            models.UniqueConstraint(fields=["job", "number"], name="attempt_number_once"),
            models.UniqueConstraint(fields=["job"], condition=Q(state__in=LIVE), name="attempt_one_live"),
            models.CheckConstraint(
                condition=Q(state__in=LIVE, finished_at__isnull=True)
                | (~Q(state__in=LIVE) & Q(finished_at__isnull=False)),
                name="attempt_finished_at_its_end",
            ),
        ]
        indexes = [
            models.Index(fields=["server"], name="attempt_live_on_server", condition=Q(state__in=LIVE)),
            models.Index(fields=["server", "id"], name="attempt_of_server"),
            models.Index(fields=["request_id"], name="attempt_of_claim", condition=Q(request_id__isnull=False)),
            models.Index(fields=["finished_at"], name="attempt_interrupted", condition=Q(state__in=INTERRUPTED)),
        ]
        triggers = guard(states.pairs(states.ATTEMPT_TRANSITIONS), states.ATTEMPT_INITIAL)

    def __str__(self) -> str:
        return f"{self.job_id}#{self.number}"


class LateReport(models.Model):
    """What a worker said of an attempt that was no longer its own: refused, kept and shown."""

    at = models.DateTimeField(db_default=ClockTimestamp())
    job = models.ForeignKey(WorkerJob, models.CASCADE, related_name="late_reports")
    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="late_reports")
    event = models.TextField()
    reason = models.TextField(help_text="The code it was refused with.")
    body = models.JSONField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.event} refused: {self.reason}"


class LogLine(models.Model):
    """A line that a job's code wrote."""

    class Stream(models.TextChoices):
        STDOUT = "STDOUT"
        STDERR = "STDERR"

    at = models.DateTimeField(db_default=ClockTimestamp())
    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="log_lines", db_index=False)
    stream = models.TextField(choices=Stream)
    line = models.TextField()
    number = models.IntegerField(help_text="Its place in the attempt, from 1.")
    sequence = models.IntegerField(null=True, help_text="The highest of the attempt's LOG reports so far.")

    class Meta:
        indexes = [models.Index(fields=["attempt", "id"], name="logline_of_attempt")]

    def __str__(self) -> str:
        return self.line
