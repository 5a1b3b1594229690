"""State of the control plane itself: its clock, its timetable, maintenance and the brake."""

from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import (
    ClockTimestamp,
)
from liveness.models.access import DEFAULT_NAMESPACE


class Clock(models.Model):
    """Observed time: time that passes only while heartbeats can arrive. The table has one row.

    It advances at each check by the time since the check before, and at most by `credit`. It stands still during an
    outage of the web processes, the database or the executors, so that no such outage disconnects a server. Someone may
    set the database's clock. So only its change between two checks counts, and only if it is positive.
    """

    id = models.SmallIntegerField(primary_key=True, db_default=1)
    tick = models.BigIntegerField(db_default=0, help_text="Number of the present check.")
    tick_at = models.DateTimeField(help_text="Start of the present check.")
    reading = models.FloatField(db_default=0, help_text="Seconds of observed time.")
    advanced_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="Wall time of the reading.")
    credit = models.FloatField(
        db_default=0,
        help_text="Largest advance of one check in seconds: 1.5 check intervals, and 0 before the first check.",
    )
    witnessed = models.BooleanField(db_default=False, help_text="Heartbeats could arrive at the present check.")
    moved_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="Time when the reading last advanced.")
    finished_at = models.DateTimeField(null=True, help_text="Time when a check last succeeded.")
    took = models.FloatField(null=True, help_text="Duration of that check in seconds.")
    set_back_by = models.FloatField(
        db_default=0,
        help_text="Seconds by which the database's clock was set back, until stored times are corrected.",
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="clock_one_row")]

    def __str__(self) -> str:
        return f"clock at {self.reading}"


class Timetable(models.Model):
    """Last start of each periodic task on any executor, by the database's clock."""

    task = models.TextField(primary_key=True)
    at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.task} at {self.at}"


class Instance(models.Model):
    """State of the whole control plane. The table has one row."""

    id = models.SmallIntegerField(primary_key=True, db_default=1)
    maintenance_since = models.DateTimeField(null=True, help_text="Null: no maintenance.")
    maintenance_until = models.DateTimeField(
        null=True, help_text="The first check after it ends it. Null: an operator does."
    )
    maintenance_by = models.TextField(db_default="")
    maintenance_note = models.TextField(db_default="")
    maintenance_ended_observed = models.FloatField(
        null=True, help_text="Observed time when maintenance last ended, also of a cluster. Null: never."
    )
    key_fingerprint = models.TextField(null=True, help_text="Fingerprint of the signing key. Null: not recorded yet.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="instance_one_row")]
        permissions = [
            ("change_maintenance", "Can enter and exit maintenance"),
            ("release_brake", "Can release the brake"),
        ]
        verbose_name = "Instance page"
        verbose_name_plural = "Instance pages"
        default_permissions = ()

    def __str__(self) -> str:
        return "maintenance" if self.maintenance_since else "in service"


class ClusterMaintenance(models.Model):
    """Maintenance of a cluster: its servers get no new work. `Instance` has that of the whole control plane."""

    cluster = models.TextField(primary_key=True)
    since = models.DateTimeField(db_default=ClockTimestamp())
    until = models.DateTimeField(null=True, help_text="As in `Instance`.")
    by = models.TextField()
    note = models.TextField(db_default="")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"maintenance of {self.cluster}"


class Brake(models.Model):
    """Brake on a server type. It is engaged if too many servers of the type fall silent at once; none is disconnected.

    A brake holds the servers of one namespace, in one cluster or in all. Each namespace has its own brakes, so that a
    token cannot cause a brake on servers of other namespaces.
    """

    type = models.TextField()
    namespace = models.TextField(db_default=DEFAULT_NAMESPACE)
    cluster = models.TextField(db_default="", help_text="Only cluster that it holds; empty: all clusters.")
    engaged_at = models.DateTimeField(db_default=ClockTimestamp())
    engaged_observed = models.FloatField()
    silent = models.IntegerField(help_text="Number of servers that would be disconnected.")
    alive = models.IntegerField(help_text="Number of alive servers.")
    released_by = models.TextField(null=True)
    release_reason = models.TextField(db_default="")

    class Meta:
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["type", "namespace", "cluster"], name="brake_of_namespace_once")]

    def __str__(self) -> str:
        return f"brake on {self.words}"

    @property
    def key(self) -> str:
        """Return the key of the brake in events and incidents, as the SQL rule `brake_key` does."""
        namespace = "" if self.namespace == DEFAULT_NAMESPACE else f"@{self.namespace}"
        return f"{self.type}{namespace}/{self.cluster}" if self.cluster else f"{self.type}{namespace}"

    @property
    def words(self) -> str:
        """Return the name of the brake for people, as the SQL rule `brake_words` does."""
        cluster = f" of cluster {self.cluster}" if self.cluster else ""
        namespace = "" if self.namespace == DEFAULT_NAMESPACE else f" of namespace {self.namespace}"
        return f"{self.type}{cluster}{namespace}"
