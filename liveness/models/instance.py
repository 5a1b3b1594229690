"""Rows of the instance itself: its clock, its timetable, maintenance, the brake."""

from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import (
    ClockTimestamp,
)
from liveness.states import ServerType


class Clock(models.Model):
    """One row: observed time, which passes only while heartbeats can get in.

    It advances at each check, by what has passed and at most by `credit`. An outage of the web tier, the
    database or the executor does not pass on it, and nobody is disconnected for one. The database's own
    clock may be set; only how far it moves between two checks counts, and never backwards.
    """

    id = models.SmallIntegerField(primary_key=True, db_default=1)
    tick = models.BigIntegerField(db_default=0, help_text="The number of the present check.")
    tick_at = models.DateTimeField(help_text="When it began.")
    reading = models.FloatField(db_default=0, help_text="Seconds of observed time.")
    advanced_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="Wall time of the reading.")
    credit = models.FloatField(
        db_default=0, help_text="The most it advances at once: 1.5 check intervals, and nothing before the first check."
    )
    witnessed = models.BooleanField(db_default=False, help_text="Heartbeats could get in at the present check.")
    moved_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="When the reading last grew.")
    finished_at = models.DateTimeField(null=True, help_text="When a check last succeeded.")
    took = models.FloatField(null=True, help_text="Seconds that it took.")
    set_back_by = models.FloatField(
        db_default=0, help_text="Seconds by which the database's clock went back, and what waits has not followed yet."
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="clock_one_row")]

    def __str__(self) -> str:
        return f"clock at {self.reading}"


class Timetable(models.Model):
    """When each periodic task was begun last, by whichever executor, by the database's clock alone."""

    task = models.TextField(primary_key=True)
    at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.task} at {self.at}"


class Instance(models.Model):
    """One row: what holds for the whole control plane."""

    id = models.SmallIntegerField(primary_key=True, db_default=1)
    maintenance_since = models.DateTimeField(null=True, help_text="Null: no maintenance.")
    maintenance_until = models.DateTimeField(null=True, help_text="The check after it ends it. Null: an operator does.")
    maintenance_by = models.TextField(db_default="")
    maintenance_note = models.TextField(db_default="")
    maintenance_ended_observed = models.FloatField(
        null=True, help_text="The observed clock when some last ended, that of a cluster as well. Null: none has."
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="instance_one_row")]
        permissions = [
            ("change_maintenance", "Can enter and exit maintenance"),
            ("release_brake", "Can release the brake"),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return "maintenance" if self.maintenance_since else "in service"


class ClusterMaintenance(models.Model):
    """A cluster in maintenance: its servers get no new work. Of the whole control plane says `Instance`."""

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
    """A type of server, in all clusters or in one, of which too many fell silent at once: nobody is disconnected."""

    type = models.TextField()
    cluster = models.TextField(db_default="", help_text="Of which alone; empty: of all clusters.")
    engaged_at = models.DateTimeField(db_default=ClockTimestamp())
    engaged_observed = models.FloatField()
    silent = models.IntegerField(help_text="How many would be disconnected.")
    alive = models.IntegerField(help_text="Of how many.")
    released_by = models.TextField(null=True)
    release_reason = models.TextField(db_default="")

    class Meta:
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["type", "cluster"], name="brake_once")]

    def __str__(self) -> str:
        return f"brake on {self.words}"

    @property
    def key(self) -> str:
        """As events and incidents have it."""
        return f"{self.type}/{self.cluster}" if self.cluster else self.type

    @classmethod
    def keys_of(cls, cluster: str) -> list[str]:
        """Of a cluster, of whatever type. A cluster's name may have a stroke of its own."""
        return [cls(type=type, cluster=cluster).key for type in ServerType]

    @property
    def words(self) -> str:
        return f"{self.type} of cluster {self.cluster}" if self.cluster else self.type
