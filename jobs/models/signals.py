"""Model of signals."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, Uuid7
from liveness.models import DEFAULT_NAMESPACE, ApiToken


class Signal(models.Model):
    """Named message, from outside or about the end of an execution.

    Every step that waits for it gets it, and every trigger on it starts an execution.
    """

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    owner = models.ForeignKey(
        ApiToken, models.PROTECT, null=True, db_index=False, help_text="Null: the control plane sent it."
    )
    namespace = models.TextField(
        db_default=DEFAULT_NAMESPACE, help_text="Only steps and triggers of this namespace get it."
    )
    name = models.TextField()
    body = models.JSONField(null=True)
    key = models.TextField(null=True)
    is_delivered = models.BooleanField(
        db_default=False, help_text="True: no step waits for it that began to wait before."
    )
    is_routed = models.BooleanField(db_default=False, help_text="True: the triggers on it have their slots.")
    trigger_chain = ArrayField(
        models.UUIDField(),
        db_default=[],
        help_text="Triggers that led to it, because it is about the end of an execution.",
    )
    created_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "key"], condition=Q(key__isnull=False), name="signal_key_once"),
        ]
        indexes = [
            models.Index(fields=["namespace", "name", "created_at"], name="signal_by_name"),
            models.Index(fields=["id"], name="signal_to_deliver", condition=Q(is_delivered=False)),
            models.Index(fields=["id"], name="signal_to_route", condition=Q(is_routed=False)),
        ]

    def __str__(self) -> str:
        return self.name
