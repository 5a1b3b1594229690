"""Servers, their heartbeats and events, and the tokens that API calls carry.

Columns that a heartbeat changes carry no index, so that a heartbeat is a HOT update.
"""

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.schema import ClockTimestamp, Refusal, Uuid7, guard, one_of
from liveness import states
from liveness.states import RestartStrategy, ServerState, ServerType


class Role(models.TextChoices):
    """What an API token may be used for."""

    WORKER = "worker"
    CLIENT = "client"
    VIEWER = "viewer"
    OPERATOR = "operator"


class ApiToken(models.Model):
    """The right to call the API in one role. Only the SHA-256 of the token is kept."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    name = models.TextField()
    role = models.TextField(choices=Role)
    prefix = models.TextField(help_text="The first letters of the token, to tell it by.")
    digest = models.BinaryField(unique=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [one_of("role", Role.values, "apitoken_role")]
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.role}, {self.prefix}…)"


class ServerQuerySet(models.QuerySet["Server"]):
    def alive(self) -> "ServerQuerySet":
        return self.filter(state__in=states.ALIVE)


class Server(models.Model):
    """One process that registered itself. A restart is another server: an id never comes back."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    type = models.TextField()
    name = models.TextField()
    cluster = models.TextField(db_default="default")
    hostname = models.TextField(db_default="")
    pid = models.IntegerField(null=True)
    version = models.TextField(db_default="")
    tags = ArrayField(models.TextField(), db_default=[])
    max_concurrent = models.IntegerField(db_default=1)
    capabilities = models.JSONField(db_default={})

    token = models.ForeignKey(ApiToken, models.PROTECT, help_text="The token it registered with.")
    instance_id = models.UUIDField(help_text="Chosen by the process, so that a retry registers once.")
    token_version = models.IntegerField(db_default=1, help_text="Raised to revoke.")

    heartbeat_interval = models.FloatField(help_text="Seconds.")
    timeout = models.FloatField(help_text="Seconds of silence until DISCONNECTED.")
    termination_grace_period = models.FloatField(help_text="Seconds.")
    worker_task_restart_strategy = models.TextField()

    state = models.TextField(db_default=states.INITIAL.value)
    state_changed_at = models.DateTimeField(db_default=ClockTimestamp())
    state_actor = models.TextField(db_default="server", help_text="Who changed it.")
    state_reason = models.TextField(db_default="")
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    last_heartbeat_at = models.DateTimeField(null=True)
    metrics = models.JSONField(db_default={})
    cordoned_by = models.TextField(null=True, help_text="Who keeps new work away, if anyone.")
    cordon_reason = models.TextField(db_default="")

    objects = ServerQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["token", "instance_id"], name="server_registers_once"),
            one_of("state", ServerState, "server_state"),
            one_of("type", ServerType, "server_type"),
            one_of("worker_task_restart_strategy", RestartStrategy, "server_restart_strategy"),
        ]
        indexes = [
            models.Index(fields=["state"], name="server_not_inactive", condition=~Q(state=ServerState.INACTIVE)),
        ]
        triggers = [
            *guard(states.pairs(), [states.INITIAL]),
            pgtrigger.Trigger(
                name="one_event_per_transition",
                when=pgtrigger.After,
                operation=pgtrigger.UpdateOf("state"),
                condition=pgtrigger.Condition("OLD.state IS DISTINCT FROM NEW.state"),
                func="""
                    INSERT INTO liveness_serverevent
                        (at, server_id, server_name, from_state, to_state, actor, reason)
                    VALUES (NEW.state_changed_at, NEW.id, NEW.name, OLD.state, NEW.state,
                            NEW.state_actor, NEW.state_reason);
                    RETURN NULL;
                """,
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ServerEvent(models.Model):
    """One transition of one server. Written by a trigger, so that no transition can go without."""

    at = models.DateTimeField()
    server_id = models.UUIDField(help_text="No foreign key: events outlive servers.")
    server_name = models.TextField()
    from_state = models.TextField()
    to_state = models.TextField()
    actor = models.TextField(help_text="server, liveness or operator:NAME")
    reason = models.TextField()

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["server_id", "id"], name="serverevent_of_server")]
        triggers = [
            Refusal(
                name="append_only",
                operation=pgtrigger.Update | pgtrigger.Delete,
                message="events are append-only' USING ERRCODE = 'restrict_violation",
            )
        ]

    def __str__(self) -> str:
        return f"{self.server_name}: {self.from_state} → {self.to_state}"


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


class Clock(models.Model):
    """One row: when the liveness check last looked, so that every step waits for a later check.

    The observed-time clock will advance here.
    """

    id = models.SmallIntegerField(primary_key=True, db_default=1)
    tick_at = models.DateTimeField(help_text="When the present check began.")
    swept_at = models.DateTimeField(help_text="When it began to recover.")
    last_swept_at = models.DateTimeField(help_text="When the check before it did.")
    finished_at = models.DateTimeField(null=True, help_text="When a check last succeeded.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="clock_one_row")]

    def __str__(self) -> str:
        return f"clock at {self.tick_at}"
