"""Models of alerts: incidents, their messages, and mutes."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, Uuid7
from liveness.models import ApiToken


class Incident(models.Model):
    """Problem that an alert rule found, from its first detection until its end."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    rule = models.TextField()
    subject = models.TextField(db_default="", help_text="Cluster or server type; empty: the whole control plane.")
    summary = models.TextField()
    severity = models.TextField(db_default="", help_text="critical, warning or info.")
    url = models.TextField(db_default="", help_text="Address of its page; empty if CONSOLE_URL is not set.")
    details = models.JSONField(db_default={})
    opened_at = models.DateTimeField(db_default=ClockTimestamp())
    seen_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="Time of its last detection.")
    announced_at = models.DateTimeField(
        null=True,
        help_text="Time when its message was sent, if a channel was set. Null: its rule was muted.",
    )
    items = ArrayField(
        models.TextField(), db_default=[], help_text="Keys of the losses or jobs that messages have named."
    )
    updates = models.IntegerField(db_default=0, help_text="Number of messages about further items.")
    updated_at = models.DateTimeField(null=True, help_text="Time of the last of these messages.")
    ended_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.TextField(db_default="", help_text="Person who acknowledged it. Empty: not yet.")
    owner = models.TextField(db_default="", help_text="Person who handles it. Empty: no owner.")

    class Meta:
        permissions = [("handle_incident", "Can acknowledge incidents, assign them and comment on them")]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=Q(ended_at__isnull=True), name="incident_open_once"
            )
        ]
        indexes = [models.Index(fields=["ended_at"], name="incident_by_end")]
        default_permissions = ()

    def __str__(self) -> str:
        return self.summary


class AlertMessage(models.Model):
    """Message in the outbox of a channel. Each try to send it has the same id."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    incident = models.ForeignKey(Incident, models.CASCADE, null=True, help_text="Null: a test message.")
    event = models.TextField(help_text="opened, updated, ended, test or notify")
    number = models.IntegerField(db_default=0, help_text="Number of an update within its incident.")
    channel = models.TextField(help_text="Name of the channel, like `webhook 1`; or notify.")
    url = models.TextField(null=True, help_text="Address of a notification about an end. Null: a message of an alert.")
    token = models.ForeignKey(
        ApiToken, models.PROTECT, null=True, db_index=False, help_text="Token whose secret signs the notification."
    )
    namespace = models.TextField(null=True, help_text="Namespace of the work that a notification is about.")
    payload = models.JSONField()
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    next_try_at = models.DateTimeField(
        db_default=ClockTimestamp(), null=True, help_text="Null: it was sent, or sending has failed finally."
    )
    tries = models.IntegerField(db_default=0)
    sent_at = models.DateTimeField(null=True)
    error = models.TextField(db_default="", help_text="Error of the last try.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["incident", "event", "number", "channel"], name="alertmessage_once"),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at"],
                name="alertmessage_due",
                condition=Q(next_try_at__isnull=False, url__isnull=True),
            ),
            models.Index(
                fields=["token", "next_try_at"],
                name="notification_due",
                condition=Q(next_try_at__isnull=False, url__isnull=False),
            ),
            models.Index(fields=["id"], name="alertmessage_of_alert", condition=Q(url__isnull=True)),
            models.Index(fields=["created_at"], name="notification_by_age", condition=Q(url__isnull=False)),
            models.Index(fields=["token", "id"], name="notification_of_token", condition=Q(url__isnull=False)),
            models.Index(fields=["created_at"], name="alertmessage_test", condition=Q(event="test")),
            models.Index(
                fields=["id"],
                name="alertmessage_given_up",
                condition=Q(next_try_at__isnull=True, sent_at__isnull=True, url__isnull=True),
            ),
            models.Index(
                fields=["id"],
                name="notification_given_up",
                condition=Q(next_try_at__isnull=True, sent_at__isnull=True, url__isnull=False),
            ),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.event} over {self.channel}"


class AlertChannel(models.Model):
    """Channel of alert messages that a person added. Those in the settings are not stored."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    kind = models.TextField(help_text="webhook, email or apprise")
    address = models.TextField(help_text="May contain a password or a token.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        default_permissions = ("add", "delete")

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return f"{self.kind} {str(self.pk)[-12:]}"


class AlertMute(models.Model):
    """Mute of an alert rule: until its end the rule sends no messages."""

    rule = models.TextField(primary_key=True, help_text="`all`: every rule.")
    until = models.DateTimeField()
    by = models.TextField()
    note = models.TextField(db_default="")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.rule} muted until {self.until}"
