"""Model of holds."""

from typing import Any

from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, ObservedNow, Uuid7, check_one_of
from jobs.choices import HoldMode, HoldOf


class Hold(models.Model):
    """Hold: nothing that it covers starts, until it is released or its time is over. Running work continues.

    It acts from its commit, because claims and starts have it as a condition. The row stays for a while after its end.
    """

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    kind = models.TextField(help_text="Kind of what it holds, one of HoldOf (jobs/choices.py).")
    value = models.TextField(help_text="Name or id of what it holds.")
    namespace = models.TextField(null=True, help_text="It holds only work of this namespace. Null: of all.")
    mode = models.TextField(db_default=HoldMode.PAUSE.value)
    note = models.TextField(db_default="")
    by = models.TextField()
    key = models.TextField(null=True, help_text="Idempotency key of the call that created it.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    begun_observed = models.FloatField(db_default=ObservedNow())
    ends_at = models.DateTimeField(null=True, help_text="Time at which it ends by itself. Null: an operator ends it.")
    ended_at = models.DateTimeField(null=True)
    ended_observed = models.FloatField(null=True)

    class Meta:
        constraints = [
            check_one_of("kind", HoldOf, "hold_kind"),
            check_one_of("mode", HoldMode, "hold_mode"),
            models.UniqueConstraint(fields=["by", "key"], condition=Q(key__isnull=False), name="hold_key_once"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, ended_observed__isnull=True)
                | Q(ended_at__isnull=False, ended_observed__isnull=False),
                name="hold_end_has_both_times",
            ),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"

    @property
    def of(self) -> dict[str, Any]:
        return {self.kind: self.value}
