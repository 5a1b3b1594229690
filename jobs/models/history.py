"""Models of the history: figures per minute and per hour, so that charts need not read jobs."""

from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import check_one_of
from jobs.history import Dimension, Span


class HistoryEntry(models.Model):
    """Figures of a minute or an hour: of all jobs, or of those with one tag, action or cluster."""

    span = models.TextField()
    at = models.DateTimeField(help_text="Start of the minute or hour.")
    dimension = models.TextField(db_default="")
    key = models.TextField(db_default="", help_text="Tag, action or cluster; empty: all except the most frequent ones.")
    completed = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(db_default=0)
    cancelled = models.BigIntegerField(db_default=0)
    expired = models.BigIntegerField(db_default=0)
    skipped = models.BigIntegerField(db_default=0)
    waited = models.JSONField(db_default={}, help_text="Number of jobs by bin of their waiting time (jobs/history.py).")
    took = models.JSONField(db_default={}, help_text="Number of jobs by bin of their duration.")
    lost = models.BigIntegerField(db_default=0, help_text="Number of lost servers.")
    moved = models.BigIntegerField(db_default=0, help_text="Number of running attempts that were resubmitted.")
    waiting = models.FloatField(null=True, help_text="Number of waiting jobs. Null: not counted.")
    running = models.FloatField(null=True)
    slots_used = models.FloatField(null=True, help_text="Used slots of alive workers.")
    slots_free = models.FloatField(null=True, help_text="Free slots of workers that may get work.")

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
    """Times up to which the history is final, and up to which it was counted last. The table has one row."""

    id = models.SmallIntegerField(primary_key=True, db_default=1)
    closed_until = models.DateTimeField(null=True, help_text="Time up to which the counts are final.")
    counted_until = models.DateTimeField(null=True)
    counted_xid = models.BigIntegerField(
        null=True, help_text="Transactions with later ids ended no job before counted_until."
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="history_one_watermark")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"history closed until {self.closed_until}"
