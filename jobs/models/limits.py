"""Models of limits: rules, slots that attempts hold, spent starts, turns of fair keys, and keys to look at again."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from controlplane.core.model_fields import ClockTimestamp, Uuid7
from liveness.models import DEFAULT_NAMESPACE

RESERVED = ("action:", "tag:", "namespace:")
"""Keys that rules add to jobs. A job must not name them."""
IS_BY_CONTENT = Q(pattern__regex=f"^({'|'.join(kind[:-1] for kind in RESERVED)}):")
"""Rules by action, tag or namespace."""


def named_limits(limits: dict[str, int] | None) -> dict[str, int] | None:
    """Return the limits of a job that its submitter named, without those that rules added."""
    return {key: slots for key, slots in (limits or {}).items() if not key.startswith(RESERVED)} or None


class LimitRule(models.Model):
    """Rule of a key, or of each key under a prefix. Its fields may be null: then a less specific rule counts.

    A rule of the namespace `default` counts for the jobs of all namespaces, another one for those of its own.
    """

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    namespace = models.TextField(db_default=DEFAULT_NAMESPACE)
    pattern = models.TextField(help_text="A key, or `prefix:*`.")
    running = models.IntegerField(null=True, help_text="Slots of a key that may be held at once.")
    starts = models.IntegerField(null=True, help_text="Starts of jobs with a key in `per_seconds`.")
    per_seconds = models.FloatField(null=True)
    max_waiting = models.IntegerField(null=True, help_text="Jobs that may wait in a namespace at once.")
    submissions_per_minute = models.IntegerField(null=True, help_text="Jobs that clients may submit to a namespace.")
    fair = models.BooleanField(null=True, help_text="True: keys take turns.")
    weight = models.IntegerField(null=True, help_text="Starts of a fair key in the time in which others get one.")
    note = models.TextField(db_default="")
    by = models.TextField(db_default="", help_text="Actor of the last change.")
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    changed_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["namespace", "pattern"], name="limitrule_once"),
            models.CheckConstraint(
                condition=Q(starts__isnull=True, per_seconds__isnull=True)
                | Q(starts__isnull=False, per_seconds__isnull=False),
                name="limitrule_starts_in_seconds",
            ),
        ]
        indexes = [
            # A claim checks if there is such a rule.
            models.Index(fields=["pattern"], name="limitrule_by_content", condition=IS_BY_CONTENT),
            # A claim of jobs with limits checks if there is such a rule.
            models.Index(fields=["pattern"], name="limitrule_fair", condition=Q(fair=True)),
            # A submission checks if there is such a rule.
            models.Index(
                fields=["namespace"],
                name="limitrule_of_quota",
                condition=Q(max_waiting__isnull=False) | Q(submissions_per_minute__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.pattern

    @property
    def max_running(self) -> int | None:
        """Return `running` of a rule of a namespace by its name among the quotas."""
        return self.running if self.pattern.startswith("namespace:") else None


class LimitSlot(models.Model):
    """Slots of a key that an attempt holds, from its claim until its code has stopped, or an execution until its end.

    There are no counters, so nothing has to be counted again after a crash. It has no foreign keys, because the other
    rows may be deleted first. A row is written for each key of a job, also if no rule limits it yet.
    """

    key = models.TextField()
    namespace = models.TextField(help_text="Namespace of the job.")
    attempt_id = models.UUIDField(null=True)
    execution_id = models.UUIDField(null=True)
    amount = models.IntegerField()

    class Meta:
        default_permissions = ()
        indexes = [
            models.Index(fields=["key"], name="limitslot_of_key"),
            models.Index(fields=["attempt_id"], name="limitslot_of_attempt"),
            models.Index(
                fields=["execution_id"], name="limitslot_of_execution", condition=Q(execution_id__isnull=False)
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(attempt_id__isnull=False, execution_id__isnull=True)
                | Q(attempt_id__isnull=True, execution_id__isnull=False),
                name="limitslot_has_one_holder",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.amount}"


class LimitBucket(models.Model):
    """Token bucket of a key: the starts that were left at a moment. Without a row it is full."""

    namespace = models.TextField(help_text="Namespace of the rule.")
    key = models.TextField()
    tokens = models.FloatField()
    at = models.DateTimeField()

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["namespace", "key"], name="limitbucket_once")]

    def __str__(self) -> str:
        return f"{self.key}: {self.tokens:g}"


class FairTurn(models.Model):
    """Turn of the last job of a fair key in the queue of a namespace, required tags and a priority.

    The row with the empty key has the current turn of the queue: the highest turn of a job that a worker was given.
    """

    namespace = models.TextField()
    required_tags = ArrayField(models.TextField())
    priority = models.IntegerField()
    key = models.TextField()
    turn = models.FloatField()
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["namespace", "required_tags", "priority", "key"], name="fairturn_once")
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.turn:g}"


class LimitRecheck(models.Model):
    """Key whose parked jobs may start now, because a slot was freed or a waiting job left.

    It is written in the transaction of the cause and deleted by the look at the parked jobs (services/limits.py). So a
    crash between the two loses nothing.
    """

    key = models.TextField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.key
