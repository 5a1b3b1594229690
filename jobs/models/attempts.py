"""Models of attempts, superseded reports and log lines."""

from django.db import models
from django.db.models import Case, Q, When

from controlplane.core.model_fields import ClockTimestamp, ObservedNow, Uuid7, build_transition_guards, check_one_of
from jobs import states
from jobs.models.jobs import WorkerJob
from jobs.states import AttemptState
from liveness.models import Server

LIVE = sorted(states.LIVE)
IS_LIVE = Q(finished_at__isnull=True)
"""Condition on `finished_at` instead of the state, so that a start changes no index and is a HOT update."""


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def live(self) -> "AttemptQuerySet":
        return self.filter(IS_LIVE)


class Attempt(models.Model):
    """Attempt of a job on one server. The live attempts are the list of claimed and running jobs."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    job = models.ForeignKey(WorkerJob, models.CASCADE, related_name="attempts", db_index=False)
    number = models.IntegerField()
    worker_slots = models.IntegerField(db_default=1, help_text="Slots of its server that it holds.")
    server = models.ForeignKey(Server, models.PROTECT, related_name="attempts", db_index=False)
    state = models.TextField(db_default=AttemptState.CLAIMED.value)
    request_id = models.UUIDField(null=True, help_text="Id of the claim, so that a retry returns the same attempts.")
    claimed_at = models.DateTimeField(db_default=ClockTimestamp())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    alive_observed = models.FloatField(
        db_default=ObservedNow(),
        help_text="Observed time of its claim, start or last heartbeat.",
    )
    started_observed = models.FloatField(null=True)
    pid = models.IntegerField(null=True)
    progress = models.FloatField(null=True, help_text="0 to 1.")
    message = models.TextField(db_default="")
    dump_requested_at = models.DateTimeField(null=True, help_text="Time when its stacks were requested; null: no more.")
    stack = models.TextField(null=True, help_text="Stacks of all threads of its code, when they were last requested.")
    stack_at = models.DateTimeField(null=True)
    error = models.JSONField(null=True)
    ended_by = models.TextField(db_default="", help_text="server, liveness or operator:NAME")
    reason = models.TextField(db_default="")
    interrupted_at = models.GeneratedField(
        expression=Case(When(state__in=sorted(states.INTERRUPTED), then="finished_at")),
        output_field=models.DateTimeField(null=True),
        db_persist=True,
        help_text="Time of its end, if its job did not end.",
    )

    objects = AttemptQuerySet.as_manager()

    class Meta:
        constraints = [
            check_one_of("state", AttemptState, "attempt_state"),
            models.UniqueConstraint(fields=["job", "number"], name="attempt_number_once"),
            models.UniqueConstraint(fields=["job"], condition=IS_LIVE, name="attempt_live_once"),
            models.CheckConstraint(
                condition=Q(state__in=LIVE, finished_at__isnull=True)
                | (~Q(state__in=LIVE) & Q(finished_at__isnull=False)),
                name="attempt_finished_at_its_end",
            ),
        ]
        indexes = [
            # With the slots, so that the used slots of a server are counted in the index.
            models.Index(fields=["server"], name="attempt_live_of_server", include=["worker_slots"], condition=IS_LIVE),
            models.Index(fields=["server", "id"], name="attempt_of_server"),
            models.Index(fields=["request_id"], name="attempt_of_claim", condition=Q(request_id__isnull=False)),
            models.Index(
                fields=["interrupted_at"], name="attempt_interrupted_at", condition=Q(interrupted_at__isnull=False)
            ),
            models.Index(fields=["server", "finished_at"], name="attempt_lost", condition=Q(ended_by="liveness")),
        ]
        triggers = build_transition_guards(states.legal_transitions(states.ATTEMPT_TRANSITIONS), states.ATTEMPT_INITIAL)

    def __str__(self) -> str:
        return f"{self.job_id}#{self.number}"


class LateReport(models.Model):
    """Superseded report: a report about an attempt that the worker no longer held.

    It was refused. The API and the console show it with the job.
    """

    at = models.DateTimeField(db_default=ClockTimestamp())
    job = models.ForeignKey(WorkerJob, models.CASCADE, related_name="late_reports")
    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="late_reports")
    event = models.TextField()
    reason = models.TextField(help_text="Error code of the refusal.")
    body = models.JSONField()
    digest = models.BinaryField(null=True, help_text="SHA-256 of event and body, so that repeats are not stored.")
    more = models.BooleanField(db_default=False, help_text="True: last stored report of its attempt; more followed.")

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["at"], name="latereport_by_time")]

    def __str__(self) -> str:
        return f"{self.event} refused: {self.reason}"


class LogLine(models.Model):
    """Line that a job's code wrote."""

    class Stream(models.TextChoices):
        STDOUT = "STDOUT"
        STDERR = "STDERR"

    at = models.DateTimeField(db_default=ClockTimestamp())
    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="log_lines", db_index=False)
    stream = models.TextField(choices=Stream)
    line = models.TextField()
    number = models.IntegerField(help_text="Number of the line in the attempt, from 1.")
    sequence = models.IntegerField(null=True, help_text="Highest sequence of the attempt's LOG reports so far.")

    class Meta:
        indexes = [models.Index(fields=["attempt", "id"], name="logline_of_attempt")]

    def __str__(self) -> str:
        return self.line
