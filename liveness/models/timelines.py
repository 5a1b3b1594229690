"""Models of a failover: the timelines of the database, and the workers that must list what they run after a change."""

from django.db import models

from controlplane.core.model_fields import ClockTimestamp


class DatabaseTimeline(models.Model):
    """PostgreSQL timeline that the control plane has used. The latest row is the present timeline.

    A new row is written after a standby was promoted or the database was restored, because transactions may be lost
    then.
    """

    at = models.DateTimeField(db_default=ClockTimestamp())
    system_identifier = models.TextField(help_text="Identifier of the database cluster.")
    timeline = models.IntegerField()
    began_with_server = models.DateTimeField(help_text="Start of the PostgreSQL process when this row was written.")
    compared_with_server = models.DateTimeField(
        help_text="Start of the PostgreSQL process at the last comparison. No job is claimed from a later process."
    )
    last_change_at = models.DateTimeField(null=True, help_text="Last stored change. Later ones may be lost.")
    lost_bytes = models.BigIntegerField(
        null=True, help_text="Bytes of the write-ahead log that are known to be lost. Null: not known."
    )
    raised_at = models.DateTimeField(
        null=True,
        help_text="Time when the attempt counts of open jobs were raised. Null: not yet.",
    )

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"timeline {self.timeline} of {self.system_identifier}"


class UnheardServer(models.Model):
    """Worker that may run attempts of a lost transaction. No job is claimed until it has listed what it runs.

    The table is nearly always empty. It has no foreign key, because servers may be deleted first.
    """

    server_id = models.UUIDField(primary_key=True)
    since_observed = models.FloatField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.server_id} unheard since {self.since_observed:g}"
