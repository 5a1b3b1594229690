"""Records about servers: events, heartbeats, counts, and rows that could not be written."""

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
    """Event: a transition of a server, or an action on any subject. A trigger writes the events of transitions."""

    at = models.DateTimeField(db_default=ClockTimestamp())
    subject_type = models.TextField(help_text="Type of the object that the event is about.")
    subject_id = models.TextField(
        db_default="", help_text="Key of that object; empty if there is only one. The event may outlive the object."
    )
    subject_name = models.TextField(db_default="", help_text="Name of that object at that time, if it has one.")
    server_id = models.UUIDField(
        null=True, help_text="No foreign key, because events outlive servers. Null: not about a server."
    )
    server_name = models.TextField(db_default="")
    namespace = models.TextField(null=True, help_text="Namespace of the server. Null: not about a server.")
    from_state = models.TextField(db_default="")
    to_state = models.TextField(db_default="", help_text="Same as from_state if an action changed no state.")
    action = models.TextField(
        db_default="", help_text="Action of an operator, a client or the brake; empty for a transition."
    )
    actor = models.TextField(help_text="server, liveness, operator:NAME or client:NAME")
    reason = models.TextField(help_text="Reason of a transition, or the note of an action.")
    changes = models.JSONField(
        null=True, help_text="Changed fields with their `old` and `new` values. Null: the action changed no fields."
    )

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
            # Events outlive servers, so the activity page searches them by the server's name.
            models.Index(fields=["server_name"], name="serverevent_by_name"),
        ]
        triggers = [
            # A trigger sets the namespace, so that no writer forgets it. It decides who may see events of deleted
            # servers.
            pgtrigger.Trigger(
                name="namespace_of_server",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert,
                condition=pgtrigger.Condition("NEW.server_id IS NOT NULL AND NEW.namespace IS NULL"),
                func="""
                    SELECT namespace INTO NEW.namespace FROM liveness_server WHERE id = NEW.server_id;
                    RETURN NEW;
                """,
            ),
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
        """Return the note of an operator or client; empty for events of servers and the liveness check."""
        return self.reason if ":" in self.actor else ""


class Heartbeat(models.Model):
    """Heartbeat of a server, kept as history.

    Its table and that of `AttemptHeartbeat` have a partition for each day; see services/partitions.py. The tables have
    no primary key: nothing reads a single row, and the index would be as large as the rows. The model has a primary key
    only because Django needs one.
    """

    pk = models.CompositePrimaryKey("server_id", "at")
    at = models.DateTimeField(db_default=ClockTimestamp())
    server_id = models.UUIDField()
    cpu_percent = models.SmallIntegerField(null=True)
    memory_percent = models.SmallIntegerField(null=True)

    class Meta:
        # The charts of a server read thousands of heartbeats, which are on as many pages of the table.
        indexes = [
            models.Index(
                fields=["server_id", "at"], include=["cpu_percent", "memory_percent"], name="heartbeat_of_server"
            )
        ]

    def __str__(self) -> str:
        return f"server {self.server_id} at {self.at}"


class AttemptHeartbeat(models.Model):
    """Heartbeat of an attempt, kept as history. Its table is like that of `Heartbeat`."""

    class Role(models.TextChoices):
        CLAIMER = "claimer"
        RUNNER = "runner"

    pk = models.CompositePrimaryKey("attempt_id", "at")
    at = models.DateTimeField(db_default=ClockTimestamp())
    server_id = models.UUIDField()
    attempt_id = models.UUIDField()
    role = models.TextField(choices=Role)
    hostname = models.TextField(null=True)
    pid = models.IntegerField(null=True)

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["attempt_id", "at"], name="heartbeat_of_attempt")]

    def __str__(self) -> str:
        return f"{self.role} at {self.at}"


class Tally(models.Model):
    """Part of a metrics counter. The value of a counter is the sum of its rows.

    Rows are only added, so that concurrent writers never wait for each other. Each check merges them into one row.
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
    """Row of a job or server that a step could not write. The step continued without it."""

    step = models.TextField(help_text="Name of the step.")
    row = models.TextField(help_text="Id of the row.")
    error = models.TextField()
    at = models.DateTimeField(db_default=ClockTimestamp(), help_text="Time of the last failure.")
    times = models.IntegerField(db_default=1)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["step", "row"], name="leftout_once")]
        default_permissions = ()
        verbose_name_plural = "left out"

    def __str__(self) -> str:
        return f"{self.step}: {self.row}"
