"""Models of bulk actions and their items."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, Uuid7, check_one_of
from jobs.states import BatchState, ItemOutcome


class Batch(models.Model):
    """Bulk action on many jobs, executions, triggers or servers. It runs until each item has an outcome."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    key = models.TextField(null=True, unique=True, help_text="Idempotency key of the form or call.")
    state = models.TextField(db_default=BatchState.RUNNING.value)
    operation = models.TextField(help_text="One of OPERATIONS (jobs/services/operator_actions.py).")
    subject_type = models.TextField(help_text="Type of the items: job, execution, trigger or server.")
    label = models.TextField(help_text="Name of the action on the pages.")
    chosen = models.TextField(db_default="", help_text="Description of how the items were chosen.")
    query = models.TextField(db_default="", help_text="Filter as the query string of the list.")
    actor = models.TextField()
    user_key = models.TextField(null=True, help_text="Key of the user who started it on the pages. Null: a token did.")
    namespaces = ArrayField(
        models.TextField(), null=True, help_text="Namespaces that the actor had access to. Null: all."
    )
    item_namespaces = ArrayField(
        models.TextField(),
        null=True,
        help_text="Namespaces of its items. Null: not known; only users of all namespaces see it.",
    )
    note = models.TextField(db_default="")
    parameters = models.JSONField(db_default={})
    left_out = models.JSONField(
        db_default=[], help_text="Numbers of chosen objects to which it did not apply at the start, by reason."
    )
    total = models.IntegerField()
    done = models.IntegerField(db_default=0)
    refused = models.IntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    worked_on_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="Time when items were last processed.")
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
    """Item of a bulk action, with its outcome."""

    id = models.BigAutoField(primary_key=True)
    batch = models.ForeignKey(Batch, models.DO_NOTHING, related_name="items", db_constraint=False, db_index=False)
    subject_id = models.UUIDField()
    seen = models.TextField(db_default="", help_text="State and attempt when it was chosen; empty: any.")
    outcome = models.TextField(db_default=ItemOutcome.PENDING.value)
    reason = models.TextField(db_default="", help_text="Reason of a refusal.")
    result_id = models.UUIDField(null=True, help_text="Id of the job or execution that the action created.")
    tries = models.IntegerField(db_default=0)
    leased_until = models.DateTimeField(null=True, help_text="Lease of the process that works on it.")
    at = models.DateTimeField(null=True, help_text="Time of the outcome.")

    class Meta:
        constraints = [check_one_of("outcome", ItemOutcome, "batchitem_outcome")]
        indexes = [
            models.Index(fields=["batch", "id"], name="batchitem_of_batch"),
            models.Index(fields=["batch", "outcome", "id"], name="batchitem_by_outcome"),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.subject_id}: {self.outcome}"
