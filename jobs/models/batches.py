"""Bulk actions: what an operator had done to many at once, and what came of it for each."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, Uuid7, check_one_of
from jobs.states import BatchState, ItemOutcome


class Batch(models.Model):
    """An action on many jobs, executions or servers. It goes on by itself until each item has its outcome."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    key = models.TextField(null=True, unique=True, help_text="Of the form: sent twice, it begins one batch.")
    state = models.TextField(db_default=BatchState.RUNNING.value)
    operation = models.TextField(help_text="One of OPERATIONS (jobs/services/operator_actions.py).")
    subject_type = models.TextField(help_text="What the items are: job, execution or server.")
    label = models.TextField(help_text="What the action is called on the pages.")
    chosen = models.TextField(db_default="", help_text="How the items were chosen, in words.")
    query = models.TextField(db_default="", help_text="The filter, as it stands in the address of the list.")
    actor = models.TextField()
    user_key = models.TextField(null=True, help_text="Of the user who began it on the pages. Null: a token did.")
    namespaces = ArrayField(
        models.TextField(), null=True, help_text="Those that whoever began it could reach. Null: all."
    )
    note = models.TextField(db_default="")
    parameters = models.JSONField(db_default={})
    left_out = models.JSONField(
        db_default=[], help_text="To how many that were chosen it did not apply when it began, and why."
    )
    total = models.IntegerField()
    done = models.IntegerField(db_default=0)
    refused = models.IntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    worked_on_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="When items were taken on last.")
    finished_at = models.DateTimeField(null=True)
    stopped_by = models.TextField(db_default="")

    class Meta:
        constraints = [
            check_one_of("state", BatchState, "batch_state"),
            models.CheckConstraint(
                condition=Q(state=BatchState.RUNNING, finished_at__isnull=True)
                | (~Q(state=BatchState.RUNNING) & Q(finished_at__isnull=False)),
                name="batch_finished_at_its_end",
            ),
        ]
        indexes = [
            models.Index(fields=["worked_on_at"], name="batch_running", condition=Q(state=BatchState.RUNNING)),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.label}: {self.chosen}"


class BatchItem(models.Model):
    """One of those that a batch acts on, and what came of it."""

    id = models.BigAutoField(primary_key=True)
    batch = models.ForeignKey(Batch, models.DO_NOTHING, related_name="items", db_constraint=False, db_index=False)
    subject_id = models.UUIDField()
    seen = models.TextField(db_default="", help_text="Its state when it was chosen, and the attempt; empty: any.")
    outcome = models.TextField(db_default=ItemOutcome.PENDING.value)
    reason = models.TextField(db_default="", help_text="Why it was refused.")
    result_id = models.UUIDField(null=True, help_text="What it was submitted again as, or run again as.")
    tries = models.IntegerField(db_default=0)
    leased_until = models.DateTimeField(null=True, help_text="Until then whoever has taken it on is waited for.")
    at = models.DateTimeField(null=True, help_text="When it got its outcome.")

    class Meta:
        constraints = [check_one_of("outcome", ItemOutcome, "batchitem_outcome")]
        indexes = [
            models.Index(fields=["batch", "id"], name="batchitem_of_batch"),
            models.Index(fields=["batch", "outcome", "id"], name="batchitem_by_outcome"),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.subject_id}: {self.outcome}"
