"""What is kept of servers: events, heartbeats, counts, and rows that could not be written."""

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import (
    ClockTimestamp,
    RefusingTrigger,
    check_one_of,
)
from liveness.states import LOST, Subject


class ServerEvent(models.Model):
    """One transition of one server, written by a trigger, so that no transition can go without; or one action."""

    at = models.DateTimeField(db_default=ClockTimestamp())
    subject_type = models.TextField(help_text="What it is about.")
    subject_id = models.TextField(db_default="", help_text="Its key, which it may outlive; empty where there is one.")
    subject_name = models.TextField(db_default="", help_text="What it was called then, if it has a name.")
    server_id = models.UUIDField(null=True, help_text="No foreign key: events outlive servers. Null: of no server.")
    server_name = models.TextField(db_default="")
    from_state = models.TextField(db_default="")
    to_state = models.TextField(db_default="", help_text="The same as from_state where an action changed no state.")
    action = models.TextField(db_default="", help_text="What an operator did, or the brake; empty for a transition.")
    actor = models.TextField(help_text="server, liveness, operator:NAME or client:NAME")
    reason = models.TextField(help_text="Of what an operator did, his note.")

    class Meta:
        ordering = ["id"]
        constraints = [check_one_of("subject_type", Subject, "serverevent_subject")]
        indexes = [
            models.Index(fields=["server_id", "id"], name="serverevent_of_server"),
            models.Index(fields=["at"], name="serverevent_by_time"),
            models.Index(
                fields=["subject_type", "subject_id", "id"],
                name="serverevent_of_subject",
                condition=~Q(subject_type=Subject.SERVER),
            ),
            models.Index(fields=["at"], name="serverevent_of_loss", condition=Q(to_state__in=sorted(LOST), action="")),
            # Events outlive servers: in the activity they are found by name.
            models.Index(fields=["server_name"], name="serverevent_by_name"),
        ]
        triggers = [
            RefusingTrigger(
                name="append_only",
                operation=pgtrigger.Update,
                message="events are append-only' USING ERRCODE = 'restrict_violation",
            ),
            RefusingTrigger(
                name="deleted_by_retention_only",
                operation=pgtrigger.Delete,
                condition=pgtrigger.Condition("current_setting('controlplane.retention', true) IS DISTINCT FROM 'on'"),
                message="events are append-only' USING ERRCODE = 'restrict_violation",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.subject_type} {self.subject_name}: {self.action or self.to_state}"

    @property
    def note(self) -> str:
        """Why somebody did it; empty for what servers and the liveness check did, who have no name."""
        return self.reason if ":" in self.actor else ""


class Heartbeat(models.Model):
    """The history of signs of life: of a server, or of one of its attempts."""

    class Role(models.TextChoices):
        SERVER = "server"
        CLAIMER = "claimer"
        RUNNER = "runner"

    at = models.DateTimeField(db_default=ClockTimestamp())
    server_id = models.UUIDField()
    attempt_id = models.UUIDField(null=True)
    role = models.TextField(choices=Role)
    hostname = models.TextField(null=True)
    pid = models.IntegerField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["server_id", "at"], name="heartbeat_of_server", condition=Q(role="server")),
            models.Index(fields=["attempt_id", "at"], name="heartbeat_of_attempt", condition=~Q(role="server")),
        ]

    def __str__(self) -> str:
        return f"{self.role} at {self.at}"


class Tally(models.Model):
    """What happened so and so often, for counters that outlive what is counted. Their value is the sum of the rows.

    Rows are only added, so that no two who count wait for each other; each check folds them into one.
    """

    name = models.TextField()
    labels = ArrayField(models.TextField(), db_default=[])
    number = models.FloatField()

    class Meta:
        default_permissions = ()
        verbose_name_plural = "tallies"

    def __str__(self) -> str:
        return f"{self.name}{self.labels}: {self.number:g}"


class LeftOut(models.Model):
    """A row that could not be written, of jobs or of servers: the rest went on without it."""

    step = models.TextField(help_text="What was to be done to it.")
    row = models.TextField(help_text="Its id.")
    error = models.TextField()
    at = models.DateTimeField(db_default=ClockTimestamp(), help_text="When last.")
    times = models.IntegerField(db_default=1)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["step", "row"], name="leftout_once")]
        default_permissions = ()
        verbose_name_plural = "left out"

    def __str__(self) -> str:
        return f"{self.step}: {self.row}"
