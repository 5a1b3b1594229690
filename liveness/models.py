"""Servers, their heartbeats and events, and the tokens that API calls carry.

Columns that a heartbeat changes carry no index, so that a heartbeat is a HOT update.
"""

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import (
    ClockTimestamp,
    ObservedNow,
    RefusingTrigger,
    Uuid7,
    build_transition_guards,
    check_one_of,
)
from liveness import states
from liveness.states import Mover, RestartStrategy, ServerState, ServerType, Subject

REACTIVATION = "OLD.reactivate_on_heartbeat AND (OLD.state, NEW.state) IN ({})".format(
    ", ".join(f"('{from_}', '{to}')" for from_, to in states.reactivation_transitions())
)


class Role(models.TextChoices):
    """What an API token may be used for."""

    WORKER = "worker"
    CLIENT = "client"
    VIEWER = "viewer"
    OPERATOR = "operator"


# Not a SHA-256, so there is no text that this token would let in; and unique, so that it is made once.
OWN_DIGEST = b"control plane"
"""Of the token with which the control plane's own processes are registered."""


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
    types = ArrayField(models.TextField(), null=True, help_text="What alone may register with it. Null: any.")
    tags = ArrayField(models.TextField(), null=True, help_text="The tags that alone these may have. Null: any.")
    cluster = models.TextField(null=True, help_text="The cluster that alone they may be of. Null: any.")
    max_servers = models.IntegerField(null=True, help_text="How many of them may be there at once. Null: any number.")

    class Meta:
        ordering = ["-created_at"]
        constraints = [check_one_of("role", Role.values, "apitoken_role")]
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.role}, {self.prefix}…)"


class SignIn(models.Model):
    """How often somebody tried to sign in of late: under a name from an address, or from an address at all."""

    key = models.TextField(primary_key=True, help_text="A digest: some type their password where the name belongs.")
    until = models.DateTimeField(help_text="From then on as if there had been no try.")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.key} until {self.until}"


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

    reactivate_on_heartbeat = models.BooleanField(db_default=False)

    state = models.TextField(db_default=states.INITIAL.value)
    state_changed_at = models.DateTimeField(db_default=ClockTimestamp())
    state_changed_observed = models.FloatField(db_default=ObservedNow(), help_text="Seconds of the observed clock.")
    state_changed_tick = models.BigIntegerField(db_default=0, help_text="The liveness check at that time.")
    emptied_tick = models.BigIntegerField(null=True, help_text="The check that found it lost and holding nothing.")
    state_actor = models.TextField(db_default="server", help_text="Who changed it.")
    state_reason = models.TextField(db_default="")
    disconnected_observed = models.FloatField(null=True, help_text="When it was last disconnected for silence.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    created_observed = models.FloatField(db_default=ObservedNow())
    last_heartbeat_at = models.DateTimeField(null=True)
    heard_observed = models.FloatField(db_default=ObservedNow(), help_text="The observed clock at its last heartbeat.")
    witnessed_at = models.DateTimeField(null=True, help_text="When a beat of its last proved that heartbeats get in.")
    metrics = models.JSONField(db_default={})
    cordoned_by = models.TextField(null=True, help_text="Who keeps new work away, if anyone.")
    cordon_reason = models.TextField(db_default="")
    drain_deadline = models.DateTimeField(null=True, help_text="When it gives back what is left.")
    drain_until_observed = models.FloatField(null=True)
    drain_held = models.IntegerField(null=True, help_text="Attempts it held when the drain began.")

    objects = ServerQuerySet.as_manager()

    class Meta:
        permissions = [
            ("cordon_server", "Can cordon and uncordon servers"),
            ("drain_server", "Can drain servers"),
            ("disconnect_server", "Can disconnect servers"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["token", "instance_id"], name="server_registers_once"),
            check_one_of("state", ServerState, "server_state"),
            check_one_of("type", ServerType, "server_type"),
            check_one_of("worker_task_restart_strategy", RestartStrategy, "server_restart_strategy"),
        ]
        indexes = [
            models.Index(fields=["state"], name="server_not_inactive", condition=~Q(state=ServerState.INACTIVE)),
            models.Index(
                fields=["id"],
                name="server_keeps_jobs",
                condition=Q(worker_task_restart_strategy=RestartStrategy.NEVER) & ~Q(state__in=sorted(states.ALIVE)),
            ),
            models.Index(fields=["instance_id"], name="server_of_instance"),
            models.Index(fields=["state_changed_at"], name="server_inactive", condition=Q(state=ServerState.INACTIVE)),
        ]
        triggers = [
            *build_transition_guards(states.legal_transitions(), [states.INITIAL], unless=REACTIVATION),
            pgtrigger.Trigger(
                # What the check moves was due at its own reading of the clock; all else happens at its own moment.
                name="times_of_a_transition",
                when=pgtrigger.Before,
                operation=pgtrigger.UpdateOf("state"),
                condition=pgtrigger.Condition("OLD.state IS DISTINCT FROM NEW.state"),
                func="""
                    NEW.state_changed_at := clock_timestamp();
                    SELECT tick, CASE WHEN NEW.state_actor = 'liveness' THEN reading ELSE observed_now() END
                      INTO NEW.state_changed_tick, NEW.state_changed_observed
                      FROM liveness_clock;
                    RETURN NEW;
                """,
            ),
            pgtrigger.Trigger(
                name="one_event_per_transition",
                when=pgtrigger.After,
                operation=pgtrigger.UpdateOf("state"),
                condition=pgtrigger.Condition("OLD.state IS DISTINCT FROM NEW.state"),
                func="""
                    INSERT INTO liveness_serverevent
                        (at, subject_type, subject_id, subject_name, server_id, server_name,
                         from_state, to_state, actor, reason)
                    VALUES (NEW.state_changed_at, 'server', NEW.id, NEW.name, NEW.id, NEW.name,
                            OLD.state, NEW.state, NEW.state_actor, NEW.state_reason);
                    INSERT INTO liveness_tally (name, labels, number)
                    VALUES ('transitions', ARRAY[OLD.state, NEW.state, split_part(NEW.state_actor, ':', 1)], 1);
                    RETURN NULL;
                """,
            ),
        ]

    def __str__(self) -> str:
        return self.name


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
    actor = models.TextField(help_text="server, liveness or operator:NAME")
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
        """Why an operator did it; empty for what no operator did."""
        return self.reason if self.actor.startswith(f"{Mover.OPERATOR}:") else ""


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
    credit = models.FloatField(db_default=15, help_text="The most it advances at once: 1.5 check intervals.")
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
    maintenance_by = models.TextField(db_default="")
    maintenance_note = models.TextField(db_default="")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="instance_one_row")]
        permissions = [
            ("change_maintenance", "Can enter and exit maintenance"),
            ("release_brake", "Can release the brake"),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return "maintenance" if self.maintenance_since else "in service"


class Brake(models.Model):
    """A type of server of which so many fell silent at once that nobody of it is disconnected."""

    type = models.TextField(primary_key=True)
    engaged_at = models.DateTimeField(db_default=ClockTimestamp())
    engaged_observed = models.FloatField()
    silent = models.IntegerField(help_text="How many would be disconnected.")
    alive = models.IntegerField(help_text="Of how many.")
    released_by = models.TextField(null=True)
    release_reason = models.TextField(db_default="")

    class Meta:
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"brake on {self.type}"
