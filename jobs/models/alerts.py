"""Alerts: incidents, the messages that tell of them, and what is muted."""

from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, Uuid7


class Incident(models.Model):
    """Something that a rule of alerts found, from when it was found until it is over."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    rule = models.TextField()
    subject = models.TextField(db_default="", help_text="A cluster or a type of server; empty: the whole instance.")
    summary = models.TextField()
    details = models.JSONField(db_default={})
    opened_at = models.DateTimeField(db_default=ClockTimestamp())
    seen_at = models.DateTimeField(db_default=ClockTimestamp(), help_text="When it was found last.")
    announced_at = models.DateTimeField(null=True, help_text="Null: nobody was told, for its rule was muted.")
    ended_at = models.DateTimeField(null=True)

    class Meta:
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
    """The outbox: what is to be sent over which channel. Its id is the same each time that it is tried."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    incident = models.ForeignKey(Incident, models.CASCADE, null=True, help_text="Null: a test.")
    event = models.TextField(help_text="opened, ended or test")
    channel = models.TextField(help_text="webhook, email or apprise, and which of them.")
    payload = models.JSONField()
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    next_try_at = models.DateTimeField(
        db_default=ClockTimestamp(), null=True, help_text="Null: it was sent, or given up."
    )
    tries = models.IntegerField(db_default=0)
    sent_at = models.DateTimeField(null=True)
    error = models.TextField(db_default="", help_text="Of the last try.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["incident", "event", "channel"], name="alertmessage_once"),
        ]
        indexes = [
            models.Index(fields=["next_try_at"], name="alertmessage_due", condition=Q(next_try_at__isnull=False))
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.event} over {self.channel}"


class AlertMute(models.Model):
    """Until when nobody is told of what a rule finds."""

    rule = models.TextField(primary_key=True, help_text="`all`: every rule.")
    until = models.DateTimeField()
    by = models.TextField()
    note = models.TextField(db_default="")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.rule} muted until {self.until}"
