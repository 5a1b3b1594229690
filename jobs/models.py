"""Worker jobs, their attempts, and the reports that came too late.

What becomes of a job is decided on its own row, under its lock; attempts are what happened.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from controlplane.schema import ClockTimestamp, ObservedNow, Uuid7, guard, one_of
from jobs import states
from jobs.states import AttemptState, JobKind, JobState, OnWorkerLost, RetryBackoff, Unmatched
from liveness.models import ApiToken, Server

TERMINAL = sorted(states.TERMINAL)
LIVE = sorted(states.LIVE)


class WorkerJob(models.Model):
    """A task or a trigger that a worker executes."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    kind = models.TextField(db_default=JobKind.TASK.value)
    state = models.TextField(db_default=JobState.PENDING.value)
    attempt_id = models.UUIDField(null=True, help_text="The live attempt.")
    owner = models.ForeignKey(ApiToken, models.PROTECT, db_index=False)
    key = models.TextField(null=True)
    fingerprint = models.BinaryField(help_text="SHA-256 of what was submitted.")

    action = models.JSONField()
    payload = models.JSONField(null=True)
    tags = ArrayField(models.TextField(), db_default=[])
    required_tags = ArrayField(models.TextField(), db_default=[])
    priority = models.IntegerField(db_default=0)
    timeout_seconds = models.FloatField(null=True)
    on_worker_lost = models.TextField(db_default=OnWorkerLost.RESUBMIT.value)
    unmatched = models.TextField(db_default=Unmatched.FAIL.value)
    max_retries = models.IntegerField(db_default=0)
    retry_delay_seconds = models.FloatField(db_default=0)
    retry_backoff = models.TextField(db_default=RetryBackoff.FIXED.value)
    retry_on = ArrayField(models.TextField(), null=True, help_text="Codes; null: every error of the job's own code.")
    good_until = models.DateTimeField(null=True, help_text="EXPIRED unless it was claimed by then.")
    resubmission_of = models.ForeignKey(
        "self", models.DO_NOTHING, null=True, db_constraint=False, db_index=False, help_text="The ended job it repeats."
    )
    refused_by = ArrayField(models.UUIDField(), db_default=[], help_text="Servers that may not run it.")

    attempt_count = models.IntegerField(db_default=0)
    resubmissions = models.IntegerField(db_default=0, help_text="Losses it came back from.")
    retries = models.IntegerField(db_default=0)
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_observed = models.FloatField(null=True)
    pending_observed = models.FloatField(db_default=ObservedNow(), help_text="When it last began to wait.")
    output = models.JSONField(null=True)
    error = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    available_at = models.DateTimeField(db_default=ClockTimestamp())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            one_of("state", JobState, "job_state"),
            one_of("kind", JobKind, "job_kind"),
            one_of("on_worker_lost", OnWorkerLost, "job_on_worker_lost"),
            one_of("unmatched", Unmatched, "job_unmatched"),
            one_of("retry_backoff", RetryBackoff, "job_retry_backoff"),
            models.UniqueConstraint(fields=["owner", "key"], condition=Q(key__isnull=False), name="job_key_once"),
            models.CheckConstraint(
                condition=Q(state__in=TERMINAL, finished_at__isnull=False)
                | (~Q(state__in=TERMINAL) & Q(finished_at__isnull=True)),
                name="job_finished_at_its_end",
            ),
            models.CheckConstraint(
                condition=Q(state__in=LIVE, attempt_id__isnull=False)
                | (~Q(state__in=LIVE) & Q(attempt_id__isnull=True)),
                name="job_held_while_live",
            ),
        ]
        indexes = [
            # Claims read it once per set of required tags: nothing they may not have stands in their way.
            models.Index(
                "required_tags",
                F("priority").desc(),
                "available_at",
                "id",
                name="job_to_claim",
                condition=Q(state=JobState.PENDING),
            ),
            models.Index(fields=["owner", "id"], name="job_of_owner"),
            models.Index(
                fields=["good_until"],
                name="job_good_until",
                condition=Q(state=JobState.PENDING, good_until__isnull=False),
            ),
        ]
        triggers = guard(states.pairs(states.JOB_TRANSITIONS), states.JOB_INITIAL)

    def __str__(self) -> str:
        return str(self.id)


class Attempt(models.Model):
    """One try of a job on one server; the live ones are the worker-job-running store."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    job = models.ForeignKey(WorkerJob, models.CASCADE, related_name="attempts", db_index=False)
    number = models.IntegerField()
    server = models.ForeignKey(Server, models.PROTECT, related_name="attempts", db_index=False)
    state = models.TextField(db_default=AttemptState.CLAIMED.value)
    request_id = models.UUIDField(null=True, help_text="Of the claim, so that it can be repeated.")
    claimed_at = models.DateTimeField(db_default=ClockTimestamp())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    alive_observed = models.FloatField(
        db_default=ObservedNow(),
        help_text="The observed clock at its last sign of life: its claim, start or heartbeat.",
    )
    started_observed = models.FloatField(null=True)
    pid = models.IntegerField(null=True)
    progress = models.FloatField(null=True, help_text="0 to 1.")
    message = models.TextField(db_default="")
    error = models.JSONField(null=True)
    ended_by = models.TextField(db_default="", help_text="server, liveness or operator:NAME")
    reason = models.TextField(db_default="")

    class Meta:
        constraints = [
            one_of("state", AttemptState, "attempt_state"),
            models.UniqueConstraint(fields=["job", "number"], name="attempt_number_once"),
            models.UniqueConstraint(fields=["job"], condition=Q(state__in=LIVE), name="attempt_one_live"),
            models.CheckConstraint(
                condition=Q(state__in=LIVE, finished_at__isnull=True)
                | (~Q(state__in=LIVE) & Q(finished_at__isnull=False)),
                name="attempt_finished_at_its_end",
            ),
        ]
        indexes = [
            models.Index(fields=["server"], name="attempt_live_on_server", condition=Q(state__in=LIVE)),
            models.Index(fields=["server", "id"], name="attempt_of_server"),
            models.Index(fields=["request_id"], name="attempt_of_claim", condition=Q(request_id__isnull=False)),
        ]
        triggers = guard(states.pairs(states.ATTEMPT_TRANSITIONS), states.ATTEMPT_INITIAL)

    def __str__(self) -> str:
        return f"{self.job_id}#{self.number}"


class LateReport(models.Model):
    """What a worker said of an attempt that was no longer its own: refused, kept and shown."""

    at = models.DateTimeField(db_default=ClockTimestamp())
    job = models.ForeignKey(WorkerJob, models.CASCADE, related_name="late_reports")
    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="late_reports")
    event = models.TextField()
    reason = models.TextField(help_text="The code it was refused with.")
    body = models.JSONField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.event} refused: {self.reason}"


class LogLine(models.Model):
    """A line that a job's code wrote."""

    class Stream(models.TextChoices):
        STDOUT = "STDOUT"
        STDERR = "STDERR"

    at = models.DateTimeField(db_default=ClockTimestamp())
    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="log_lines", db_index=False)
    stream = models.TextField(choices=Stream)
    line = models.TextField()
    number = models.IntegerField(help_text="Its place in the attempt, from 1.")
    sequence = models.IntegerField(null=True, help_text="The highest of the attempt's LOG reports so far.")

    class Meta:
        indexes = [models.Index(fields=["attempt", "id"], name="logline_of_attempt")]

    def __str__(self) -> str:
        return self.line
