"""Models of triggers and their slots."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, Uuid7, check_one_of
from jobs.choices import Missed, Overlap
from jobs.models.executions import Execution
from jobs.models.jobs import WorkerJob
from jobs.states import BackfillState, SlotOutcome, TriggerState
from liveness.models import DEFAULT_NAMESPACE


class Trigger(models.Model):
    """Trigger: starts an execution at each slot of its schedule, or at each signal.

    With an action, a job runs first, and its output decides if the execution starts.
    """

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    name = models.TextField()
    namespace = models.TextField(db_default=DEFAULT_NAMESPACE, help_text="Namespace of its jobs and executions.")
    cron = models.TextField(null=True, blank=True)
    interval_seconds = models.FloatField(null=True, blank=True)
    on_signal = models.TextField(
        null=True, blank=True, help_text="Name of a signal, or prefix:* for all signals with this prefix."
    )
    timezone = models.TextField(default="UTC")
    start_at = models.DateTimeField(null=True, blank=True, help_text="No slot is before this time.")
    end_at = models.DateTimeField(null=True, blank=True, help_text="No slot is after this time.")
    jitter_seconds = models.FloatField(
        default=0.0, help_text="Each slot starts late by a part of this, always the same part."
    )
    action = models.JSONField(null=True, blank=True, help_text="Null: its execution starts without an evaluation.")
    payload = models.JSONField(null=True, blank=True)
    tags = ArrayField(models.TextField(), db_default=[], blank=True)
    priority = models.IntegerField(default=0)
    worker_slots = models.IntegerField(default=1, help_text="Slots of its worker that an evaluation uses.")
    timeout_seconds = models.FloatField(default=300.0, help_text="Timeout of each attempt of an evaluation.")
    max_retries = models.IntegerField(default=1, help_text="Number of retries of a failed evaluation.")
    enabled = models.BooleanField(default=True)
    missed = models.TextField(choices=[(m.value, m.value) for m in Missed], default=Missed.FIRE_ONCE.value)
    overlap = models.TextField(choices=[(o.value, o.value) for o in Overlap], default=Overlap.ALLOW.value)
    pause_after_failures = models.IntegerField(
        null=True, blank=True, help_text="Number of FAILED executions in a row that pauses it."
    )
    failures_in_row = models.IntegerField(default=0, editable=False)
    enabled_at = models.DateTimeField(
        null=True, editable=False, help_text="Failures of executions that started before are not counted."
    )
    execution = models.JSONField(help_text="Execution that it starts.")
    next_slot_at = models.DateTimeField(null=True, help_text="Null: it is not enabled, or it has no further slot.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [
            # Unique per namespace, because a conflict would reveal the names of other namespaces.
            models.UniqueConstraint(fields=["namespace", "name"], name="trigger_name_once"),
            check_one_of("missed", Missed, "trigger_missed"),
            check_one_of("overlap", Overlap, "trigger_overlap"),
            models.CheckConstraint(
                condition=Q(cron__isnull=True, interval_seconds__gt=0, on_signal__isnull=True)
                | Q(cron__isnull=False, interval_seconds__isnull=True, on_signal__isnull=True)
                | Q(cron__isnull=True, interval_seconds__isnull=True, on_signal__isnull=False),
                name="trigger_has_one_schedule",
            ),
        ]
        permissions = [("evaluate_trigger", "Can have triggers evaluated now")]

    def __str__(self) -> str:
        return self.name

    @property
    def state(self) -> TriggerState:
        return TriggerState.ENABLED if self.enabled else TriggerState.PAUSED


class Backfill(models.Model):
    """Run of a trigger for the past slots of a period, some at a time."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    trigger = models.ForeignKey(Trigger, models.CASCADE, related_name="backfills", db_index=False)
    start_at = models.DateTimeField(help_text="First moment of the period.")
    end_at = models.DateTimeField(help_text="First moment after the period.")
    max_running = models.IntegerField(help_text="Largest number of its executions and evaluations at once.")
    total = models.IntegerField(default=0, help_text="Number of its slots.")
    state = models.TextField(db_default=BackfillState.RUNNING.value)
    by = models.TextField()
    note = models.TextField(db_default="")
    key = models.TextField(null=True, help_text="Idempotency key of the request.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            check_one_of("state", BackfillState, "backfill_state"),
            models.UniqueConstraint(
                fields=["trigger", "key"], condition=Q(key__isnull=False), name="backfill_once_by_key"
            ),
        ]
        indexes = [
            models.Index(fields=["trigger", "id"], name="backfill_of_trigger"),
            models.Index(fields=["id"], name="backfill_running", condition=Q(state=BackfillState.RUNNING)),
        ]

    def __str__(self) -> str:
        return f"{self.start_at} to {self.end_at}"


class TriggerSlot(models.Model):
    """Slot of a trigger: a time at which it was due, or at which its signal was sent, and the outcome."""

    trigger = models.ForeignKey(Trigger, models.CASCADE, related_name="slots", db_index=False)
    slot = models.DateTimeField()
    outcome = models.TextField()
    by = models.TextField(db_default="", help_text="Actor who requested it; empty: the schedule.")
    note = models.TextField(db_default="", help_text="Explanation for people.")
    key = models.TextField(null=True, help_text="Idempotency key of the request.")
    job = models.OneToOneField(WorkerJob, models.DO_NOTHING, null=True, db_constraint=False, related_name="slot")
    execution = models.ForeignKey(
        Execution, models.DO_NOTHING, null=True, db_constraint=False, db_index=False, related_name="+"
    )
    signal = models.TextField(null=True, help_text="Name of the signal that it is for.")
    body = models.JSONField(null=True, help_text="Body of the signal, until the slot has started.")
    trigger_chain = ArrayField(models.UUIDField(), db_default=[], help_text="Triggers that led to its signal.")
    backfill = models.ForeignKey(
        Backfill, models.DO_NOTHING, null=True, db_constraint=False, db_index=False, related_name="slots"
    )
    is_running = models.BooleanField(
        db_default=False, help_text="True: its execution has not ended, as of the last tick."
    )

    class Meta:
        ordering = ["-slot"]
        constraints = [
            check_one_of("outcome", SlotOutcome, "triggerslot_outcome"),
            models.UniqueConstraint(fields=["trigger", "slot"], name="triggerslot_once"),
            models.UniqueConstraint(
                fields=["trigger", "key"], condition=Q(key__isnull=False), name="triggerslot_once_by_key"
            ),
        ]
        indexes = [
            models.Index(
                fields=["backfill", "slot"], name="triggerslot_of_backfill", condition=Q(backfill__isnull=False)
            ),
            models.Index(
                fields=["trigger"],
                name="triggerslot_open",
                condition=Q(outcome__in=[SlotOutcome.QUEUED, SlotOutcome.EVALUATING]) | Q(is_running=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.slot}: {self.outcome}"
