"""Model of servers.

No column that a heartbeat changes has an index, so that a heartbeat is a HOT update.
"""

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import (
    ClockTimestamp,
    ObservedNow,
    Uuid7,
    build_transition_guards,
    check_one_of,
)
from liveness import states
from liveness.models.access import ALL_NAMESPACES, DEFAULT_NAMESPACE, ApiToken
from liveness.states import RestartStrategy, ServerState, ServerType

REACTIVATION = "OLD.reactivate_on_heartbeat AND OLD.ended_at IS NULL AND (OLD.state, NEW.state) IN ({})".format(
    ", ".join(f"('{from_}', '{to}')" for from_, to in states.reactivation_transitions())
)


class ServerQuerySet(models.QuerySet["Server"]):
    def alive(self) -> "ServerQuerySet":
        return self.filter(state__in=states.ALIVE)


class Server(models.Model):
    """Process that registered itself. A restarted process is another server, with another id."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    type = models.TextField()
    name = models.TextField()
    cluster = models.TextField(db_default="default")
    namespace = models.TextField(
        db_default=DEFAULT_NAMESPACE, help_text="Namespace of its token: it gets only jobs of it."
    )
    hostname = models.TextField(db_default="")
    pid = models.IntegerField(null=True)
    version = models.TextField(db_default="")
    tags = ArrayField(models.TextField(), db_default=[])
    given_tags = ArrayField(
        models.TextField(), null=True, help_text="Those of `tags` that were given by hand. Null: all of them."
    )
    max_concurrent = models.IntegerField(db_default=1)
    capabilities = models.JSONField(db_default={})

    token = models.ForeignKey(ApiToken, models.PROTECT, help_text="Token of its registration.")
    instance_id = models.UUIDField(help_text="Chosen by the process, so that a retry registers no second server.")
    token_version = models.IntegerField(db_default=1, help_text="Increased to revoke its server token.")

    heartbeat_interval = models.FloatField(help_text="Seconds.")
    timeout = models.FloatField(help_text="Seconds of silence until DISCONNECTED.")
    termination_grace_period = models.FloatField(help_text="Seconds.")
    worker_task_restart_strategy = models.TextField()

    reactivate_on_heartbeat = models.BooleanField(db_default=False)

    state = models.TextField(db_default=states.INITIAL.value)
    state_changed_at = models.DateTimeField(db_default=ClockTimestamp())
    state_changed_observed = models.FloatField(db_default=ObservedNow(), help_text="Observed time in seconds.")
    state_changed_tick = models.BigIntegerField(db_default=0, help_text="Number of the liveness check at that time.")
    emptied_tick = models.BigIntegerField(
        null=True, help_text="Number of the check that found it lost and without attempts."
    )
    state_actor = models.TextField(db_default="server", help_text="Actor of the last state change.")
    state_reason = models.TextField(db_default="")
    disconnected_observed = models.FloatField(
        null=True, help_text="Observed time when it was last disconnected for silence."
    )
    ended_at = models.DateTimeField(
        null=True, help_text="Time when its machine reported that none of its processes runs any more."
    )
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    created_observed = models.FloatField(db_default=ObservedNow())
    last_heartbeat_at = models.DateTimeField(null=True)
    heard_observed = models.FloatField(db_default=ObservedNow(), help_text="Observed time of its last heartbeat.")
    witnessed_at = models.DateTimeField(
        null=True, help_text="Time when one of its heartbeats last proved that heartbeats can arrive."
    )
    metrics = models.JSONField(db_default={})
    cordoned_by = models.TextField(null=True, help_text="Actor who cordoned it. Null: not cordoned.")
    cordon_reason = models.TextField(db_default="")
    cordon_until = models.DateTimeField(
        null=True, help_text="The first check after it lifts cordon and drain. Null: never."
    )
    drain_deadline = models.DateTimeField(null=True, help_text="Time when it gives its remaining attempts back.")
    drain_until_observed = models.FloatField(null=True)
    drain_held = models.IntegerField(null=True, help_text="Number of attempts it held when the drain began.")

    objects = ServerQuerySet.as_manager()

    class Meta:
        permissions = [
            ("cordon_server", "Can cordon and uncordon servers"),
            ("drain_server", "Can drain servers"),
            ("disconnect_server", "Can disconnect servers"),
            ("configure_server", "Can change concurrency and tags of workers"),
            (ALL_NAMESPACES, "Can view all namespaces"),
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
            models.Index(
                fields=["id"],
                name="server_may_be_lost",
                condition=~Q(state__in=sorted(states.ALIVE)) | Q(drain_until_observed__isnull=False),
            ),
            models.Index(fields=["token"], name="server_is_no_worker", condition=~Q(type=ServerType.WORKER)),
            models.Index(fields=["instance_id"], name="server_of_instance"),
            models.Index(fields=["cordon_until"], name="server_cordon_ends", condition=Q(cordon_until__isnull=False)),
            models.Index(fields=["state_changed_at"], name="server_inactive", condition=Q(state=ServerState.INACTIVE)),
        ]
        triggers = [
            *build_transition_guards(states.legal_transitions(), [states.INITIAL], unless=REACTIVATION),
            pgtrigger.Trigger(
                # The liveness check changes states at its own reading of the clock; everybody else changes them now.
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
                        (at, subject_type, subject_id, subject_name, server_id, server_name, namespace,
                         from_state, to_state, actor, reason)
                    VALUES (NEW.state_changed_at, 'server', NEW.id, NEW.name, NEW.id, NEW.name, NEW.namespace,
                            OLD.state, NEW.state, NEW.state_actor, NEW.state_reason);
                    INSERT INTO liveness_tally (name, labels, number)
                    VALUES ('transitions', ARRAY[OLD.state, NEW.state, split_part(NEW.state_actor, ':', 1)], 1);
                    RETURN NULL;
                """,
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def has_ended(self) -> bool:
        """Return True if the server is retired, or if its machine reported its end."""
        return self.state in states.RETIRED or self.ended_at is not None
