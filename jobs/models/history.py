"""What happened, by the minute and by the hour: figures for charts, so that nobody reads jobs to draw them."""

from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import check_one_of
from jobs.history import Dimension, Span


class HistoryEntry(models.Model):
    """The ends of jobs within a minute or an hour: of all, or of those with one tag, one action or of one cluster."""

    span = models.TextField()
    at = models.DateTimeField(help_text="When the minute or the hour began.")
    dimension = models.TextField(db_default="")
    key = models.TextField(
        db_default="", help_text="The tag, action or cluster; empty: those beyond the most frequent."
    )
    completed = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(db_default=0)
    cancelled = models.BigIntegerField(db_default=0)
    expired = models.BigIntegerField(db_default=0)
    skipped = models.BigIntegerField(db_default=0)
    waited = models.JSONField(db_default={}, help_text="How many waited how long, by bin (jobs/history.py).")
    took = models.JSONField(db_default={}, help_text="How many ran how long, by bin.")
    lost = models.BigIntegerField(db_default=0, help_text="Servers that were lost.")
    moved = models.BigIntegerField(db_default=0, help_text="Running attempts that were resubmitted.")
    waiting = models.FloatField(null=True, help_text="Jobs that waited when last looked. Null: nobody looked.")
    running = models.FloatField(null=True)
    slots_used = models.FloatField(null=True, help_text="Of alive workers.")
    slots_free = models.FloatField(null=True, help_text="Of workers that may get work.")

    class Meta:
        constraints = [
            check_one_of("span", Span, "history_span"),
            models.CheckConstraint(
                condition=Q(dimension="") | Q(dimension__in=list(Dimension)), name="history_dimension"
            ),
            models.UniqueConstraint(fields=["span", "dimension", "at", "key"], name="history_once"),
        ]
        default_permissions = ()
        verbose_name_plural = "history"

    def __str__(self) -> str:
        return f"{self.span} {self.at} {self.dimension} {self.key}"


class HistoryWatermark(models.Model):
    """One row: up to when the history is final, and up to when it was counted last."""

    id = models.SmallIntegerField(primary_key=True, db_default=1)
    closed_until = models.DateTimeField(null=True, help_text="What ended before is counted for good.")
    counted_until = models.DateTimeField(null=True)
    counted_xid = models.BigIntegerField(
        null=True, help_text="Transactions that began later ended nothing before counted_until."
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="history_one_watermark")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"history closed until {self.closed_until}"
