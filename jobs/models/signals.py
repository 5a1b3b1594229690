"""Model of signals."""

from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, Uuid7
from liveness.models import DEFAULT_NAMESPACE, ApiToken


class Signal(models.Model):
    """Named message from outside, for which steps wait. Every step that waits for it gets it."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    owner = models.ForeignKey(ApiToken, models.PROTECT, db_index=False)
    namespace = models.TextField(db_default=DEFAULT_NAMESPACE, help_text="Only steps of this namespace get it.")
    name = models.TextField()
    body = models.JSONField(null=True)
    key = models.TextField(null=True)
    is_delivered = models.BooleanField(
        db_default=False, help_text="True: no step waits for it that began to wait before."
    )
    created_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "key"], condition=Q(key__isnull=False), name="signal_key_once"),
        ]
        indexes = [
            models.Index(fields=["namespace", "name", "created_at"], name="signal_by_name"),
            models.Index(fields=["id"], name="signal_to_deliver", condition=Q(is_delivered=False)),
        ]

    def __str__(self) -> str:
        return self.name
