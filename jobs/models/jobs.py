"""Model of jobs."""

from typing import Any

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q
from django.db.models.fields.json import KT

from controlplane.core.model_fields import (
    ClockTimestamp,
    IsTrue,
    ObservedNow,
    Uuid7,
    build_transition_guards,
    check_one_of,
    is_one_of,
    is_set_while_one_of,
)
from jobs import states
from jobs.choices import HookOf, Isolation, OnDeadline, OnWorkerLost, RetryBackoff, Unmatched
from jobs.models.executions import MISSED_DEADLINE, Execution
from jobs.states import JobKind, JobState
from jobs.tags import TYPES_WITHOUT_WORKER
from liveness.models import DEFAULT_NAMESPACE, ApiToken

TERMINAL = sorted(states.TERMINAL)
OPEN = sorted(states.OPEN)
LIVE = sorted(states.LIVE)
WAIT_FIELDS = ("what", "until", "signal", "message", "choices", "fields", "group")
"""Fields of a wait that responses show."""
PENDING = Q(IsTrue(Q(state=JobState.PENDING)))
"""Condition of the index for the rule `is_pending`."""
CLAIMABLE = Q(IsTrue(Q(state=JobState.PENDING, parked_by__isnull=True)))
"""Condition of the index for the rule `is_claimable`."""
WITH_LIMITS = Q(IsTrue(Q(state=JobState.PENDING, parked_by__isnull=True, limits__isnull=False)))
"""Condition of the index for the rule `is_claimable_with_limits`."""
WITH_SLOTS = Q(IsTrue(Q(state=JobState.PENDING, parked_by__isnull=True, worker_slots__gt=1)))
"""Condition of the index for the rule `is_claimable_with_slots`."""
PARKED = Q(IsTrue(Q(state=JobState.PENDING, parked_by__isnull=False)))
"""Condition of the index for the rule `is_parked`."""
PARKED_BY_LIMIT = Q(IsTrue(Q(state=JobState.PENDING, parked_by__has_key="limit")))
"""Condition of the index for the rule `is_parked_by_limit`."""
PARKED_BY_HOLD = Q(IsTrue(Q(state=JobState.PENDING, parked_by__has_key="hold")))
"""Condition of the index for the rule `is_parked_by_hold`."""
IN_QUARANTINE = Q(state=JobState.FAILED, error__code__in=states.QUARANTINED, dismissed_at__isnull=True)


class WorkerJobQuerySet(models.QuerySet["WorkerJob"]):
    def quarantined(self) -> "WorkerJobQuerySet":
        return self.filter(IN_QUARANTINE)


class WorkerJob(models.Model):
    """Job that a worker runs: a task or the evaluation of a trigger. Also the record of a Celery task."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    kind = models.TextField(db_default=JobKind.TASK.value)
    state = models.TextField(db_default=JobState.PENDING.value)
    attempt_id = models.UUIDField(null=True, help_text="Id of the live attempt.")
    owner = models.ForeignKey(
        ApiToken, models.PROTECT, null=True, db_index=False, help_text="Null: a trigger created it."
    )
    namespace = models.TextField(db_default=DEFAULT_NAMESPACE, help_text="Only workers of this namespace get it.")
    key = models.TextField(null=True)
    unique_key = models.TextField(
        null=True, help_text="Key by which later submissions of its owner find it. Several jobs may have it."
    )
    name = models.TextField(db_default="", help_text="Name that its submitter gave it.")
    fingerprint = models.BinaryField(help_text="SHA-256 of the submitted content.")

    execution = models.ForeignKey(Execution, models.CASCADE, null=True, related_name="steps", db_index=False)
    step = models.TextField(null=True, help_text="Key of the step in its execution.")
    position = models.IntegerField(null=True, help_text="Position among the steps and hooks.")
    is_hook = models.BooleanField(db_default=False, help_text="True: it runs after the end of its execution.")
    hook = models.TextField(null=True, help_text="Ends after which it runs, if it is a hook.")
    definition = models.JSONField(
        null=True, help_text="Submitted content of a step that was added. The others are in that of the execution."
    )
    continue_on_failure = models.BooleanField(
        db_default=False, help_text="True: steps that depend on it run even if it fails."
    )
    condition = models.TextField(null=True, help_text="Path (`when`); the step is SKIPPED if it is false.")
    run_if_skipped = models.BooleanField(
        db_default=False, help_text="True: it runs even if a step that it depends on is skipped by a condition."
    )
    payload_from = models.JSONField(null=True, help_text="Path of each reference in the payload, by JSON pointer.")
    reads = ArrayField(
        models.TextField(), null=True, help_text="Keys of the steps that its paths read. Null: it has no paths."
    )
    loop = models.JSONField(
        null=True,
        help_text="Step that runs for each item of a list: `for_each`, `fail_fast`, `required_tags` of its items,"
        " perhaps `max_parallel`. Its `items` stay until its child begins.",
    )
    restart_of_id = models.UUIDField(
        null=True, help_text="Same step of the earlier run, if its execution is a restart."
    )
    is_kept = models.BooleanField(
        db_default=False, help_text="True: that step had completed. This one starts as COMPLETED, with its output."
    )
    waits_for = models.IntegerField(db_default=0, help_text="Number of steps it depends on that have not ended.")
    passed_on = models.BooleanField(
        db_default=False, help_text="True: its end has taken effect on its execution or trigger."
    )

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
    retry_on = ArrayField(models.TextField(), null=True, help_text="Error codes; null: all errors of its code.")
    good_until = models.DateTimeField(null=True, help_text="Time at which it is EXPIRED if it still waits.")
    resubmission_of = models.ForeignKey(
        "self",
        models.DO_NOTHING,
        null=True,
        db_constraint=False,
        db_index=False,
        help_text="Ended job that it repeats.",
    )
    limits = models.JSONField(null=True, help_text="Slots that it needs, by key.")
    parked_by = models.JSONField(
        null=True,
        help_text="Reason why it waits: `limit`, `hold` or `max_parallel`. Null if it can be claimed.",
    )
    worker_slots = models.IntegerField(db_default=1, help_text="Slots of its worker that an attempt holds.")
    turn = models.FloatField(
        db_default=0, help_text="Its place among the jobs of fair keys, from 1. 0: it has no fair key, or no turn yet."
    )
    isolation = models.TextField(null=True, help_text="Process that its code must have; null: the worker decides.")
    deadline_seconds = models.FloatField(null=True)
    deadline_at = models.DateTimeField(null=True, help_text="Its creation and `deadline_seconds`.")
    on_deadline = models.TextField(null=True, help_text="Null: it has no deadline.")
    notify = models.JSONField(null=True, help_text="Addresses that get a notification of its end, each with states.")
    traceparent = models.TextField(null=True, help_text="Trace in which it was submitted (W3C).")
    attempt_traceparent = models.TextField(
        null=True, help_text="Span of its last started attempt, if its worker records spans."
    )
    refused_by = ArrayField(
        models.UUIDField(),
        db_default=[],
        help_text="Servers that gave it back as not allowed; they do not get it again.",
    )

    wait = models.JSONField(null=True, help_text="Event that a step waits for, or waited for, without a worker.")
    wait_due_at = models.DateTimeField(null=True, help_text="Time at which its wait is looked at.")
    wait_signal = models.TextField(null=True, help_text="Name of the signal that it waits for, or waited for.")
    wait_timeout_observed = models.FloatField(null=True, help_text="Observed time at which its wait times out.")

    attempt_count = models.IntegerField(db_default=0)
    resubmissions = models.IntegerField(db_default=0, help_text="Number of losses after which it was resubmitted.")
    retries = models.IntegerField(db_default=0)
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_observed = models.FloatField(null=True)
    pending_observed = models.FloatField(
        db_default=ObservedNow(), help_text="Observed time when it last began to wait."
    )
    output = models.JSONField(null=True)
    error = models.JSONField(null=True)
    checkpoint = models.JSONField(null=True, help_text="Checkpoint of its code for the next attempt.")
    checkpoint_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    available_at = models.DateTimeField(db_default=ClockTimestamp())
    finished_at = models.DateTimeField(null=True)
    send_requested_at = models.DateTimeField(
        null=True, help_text="Time when it was requested to send a Celery task again; a worker does it."
    )
    dismissed_at = models.DateTimeField(null=True, help_text="Time when it was dismissed from quarantine.")

    objects = WorkerJobQuerySet.as_manager()

    class Meta:
        permissions = [
            ("cancel_workerjob", "Can cancel jobs"),
            ("resubmit_workerjob", "Can resubmit jobs"),
            ("fail_workerjob", "Can fail jobs"),
            ("dump_workerjob", "Can dump the stacks of running jobs"),
            ("dismiss_workerjob", "Can dismiss jobs from quarantine"),
            ("recover_workerjob", "Can recover stale attempts by hand"),
        ]
        constraints = [
            check_one_of("state", JobState, "job_state"),
            check_one_of("kind", JobKind, "job_kind"),
            check_one_of("on_worker_lost", OnWorkerLost, "job_on_worker_lost"),
            check_one_of("unmatched", Unmatched, "job_unmatched"),
            check_one_of("isolation", Isolation, "job_isolation"),
            check_one_of("on_deadline", OnDeadline, "job_on_deadline"),
            check_one_of("hook", HookOf, "job_hook"),
            check_one_of("retry_backoff", RetryBackoff, "job_retry_backoff"),
            models.UniqueConstraint(fields=["owner", "key"], condition=Q(key__isnull=False), name="job_key_once"),
            models.CheckConstraint(
                condition=Q(is_set_while_one_of("finished_at", "state", TERMINAL)),
                name="job_finished_at_its_end",
            ),
            models.CheckConstraint(
                condition=Q(is_set_while_one_of("attempt_id", "state", LIVE))
                | Q(state=JobState.RUNNING)
                & (Q(loop__isnull=False) | Q(IsTrue(is_one_of(KT("action__type"), TYPES_WITHOUT_WORKER)))),
                name="job_held_while_live",
            ),
            models.UniqueConstraint(
                fields=["execution", "step"], condition=Q(execution__isnull=False), name="job_step_once"
            ),
        ]
        indexes = [
            # A claim reads this index once per tag set of its namespace, so it never scans jobs that it may not get.
            models.Index(
                "namespace",
                "required_tags",
                F("priority").desc(),
                "turn",
                "available_at",
                "id",
                name="job_to_claim",
                condition=CLAIMABLE,
            ),
            models.Index(
                KT("parked_by__limit"),
                "namespace",
                "required_tags",
                F("priority").desc(),
                "turn",
                "available_at",
                "id",
                name="job_parked",
                condition=PARKED_BY_LIMIT,
            ),
            models.Index(
                fields=["namespace"],
                name="job_parked_of_namespace",
                condition=PARKED,
            ),
            # The parked jobs of a hold, in the order in which they are unparked.
            models.Index(
                KT("parked_by__hold"),
                F("priority").desc(),
                "available_at",
                "id",
                name="job_parked_by_hold",
                condition=PARKED_BY_HOLD,
            ),
            # The claimable jobs of a key. There are few: about as many as it has free slots.
            GinIndex(
                "limits",
                name="job_with_limits",
                fastupdate=False,
                condition=WITH_LIMITS,
            ),
            models.Index(
                fields=["namespace", "required_tags", "worker_slots"],
                name="job_with_slots",
                condition=WITH_SLOTS,
            ),
            models.Index(fields=["owner", "id"], name="job_of_owner"),
            models.Index(
                fields=["owner", "required_tags"], name="job_waiting_tags_of_owner", condition=Q(state=JobState.PENDING)
            ),
            models.Index(
                fields=["owner", "unique_key"],
                name="open_job_of_unique_key",
                condition=Q(unique_key__isnull=False, state__in=OPEN),
            ),
            models.Index(
                fields=["owner", "unique_key", "created_at"],
                name="job_of_unique_key",
                condition=Q(unique_key__isnull=False),
            ),
            models.Index(fields=["state", "id"], name="job_by_state"),
            models.Index(fields=["available_at"], name="job_waiting", condition=PENDING),
            models.Index(fields=["id"], name="job_of_trigger", condition=Q(kind=JobKind.TRIGGER)),
            models.Index(
                fields=["good_until"],
                name="job_good_until",
                condition=Q(state=JobState.PENDING, good_until__isnull=False),
            ),
            models.Index(
                fields=["deadline_at"],
                name="job_deadline",
                condition=Q(finished_at__isnull=True, deadline_at__isnull=False),
            ),
            models.Index(fields=["finished_at"], name="job_missed_deadline", condition=MISSED_DEADLINE),
            models.Index(
                fields=["execution"],
                name="job_to_pass_on",
                condition=Q(state__in=TERMINAL, passed_on=False)
                & (Q(execution__isnull=False) | Q(kind=JobKind.TRIGGER)),
            ),
            models.Index(fields=["id"], name="job_refused", condition=Q(state=JobState.PENDING) & ~Q(refused_by=[])),
            models.Index(fields=["execution"], name="job_blocked", condition=Q(state=JobState.BLOCKED)),
            models.Index(
                fields=["resubmission_of", "id"], name="job_resubmission", condition=Q(resubmission_of__isnull=False)
            ),
            models.Index(fields=["finished_at"], name="job_failed", condition=Q(state=JobState.FAILED)),
            models.Index(fields=["id"], name="job_in_quarantine", condition=IN_QUARANTINE),
            # The history counts the jobs that ended since its last count.
            models.Index(fields=["finished_at"], name="job_ended", condition=Q(finished_at__isnull=False)),
            models.Index(
                fields=["wait_due_at"],
                name="job_wait_due",
                condition=Q(state=JobState.RUNNING, wait_due_at__isnull=False),
            ),
            models.Index(
                fields=["wait_timeout_observed"],
                name="job_wait_timeout",
                condition=Q(state=JobState.RUNNING, wait_timeout_observed__isnull=False),
            ),
            models.Index(
                fields=["namespace", "wait_signal"],
                name="job_waits_for_signal",
                condition=Q(state=JobState.RUNNING, wait_signal__isnull=False),
            ),
            models.Index(
                fields=["id"], name="job_waits_for_answer", condition=Q(state=JobState.RUNNING, wait__what="answer")
            ),
            # A sweep looks for children that have ended. It reads no step that waits.
            models.Index(
                fields=["execution"],
                name="job_with_child",
                condition=Q(state=JobState.RUNNING, attempt_id__isnull=True, wait__isnull=True),
            ),
            models.Index(fields=["owner"], name="job_to_send", condition=Q(send_requested_at__isnull=False)),
        ]
        triggers = [
            *build_transition_guards(
                states.legal_transitions(states.JOB_TRANSITIONS),
                states.JOB_INITIAL,
                or_begins="NEW.is_kept AND NEW.state = 'COMPLETED'",
            ),
            # The other jobs of its keys may start now, if a waiting job leaves.
            pgtrigger.Trigger(
                name="recheck_limits",
                operation=pgtrigger.UpdateOf("state"),
                when=pgtrigger.After,
                condition=pgtrigger.Condition(
                    "OLD.limits IS NOT NULL AND OLD.state = 'PENDING' AND NEW.state NOT IN ('PENDING', 'CLAIMED')"
                ),
                func="INSERT INTO jobs_limitrecheck (key) SELECT jsonb_object_keys(OLD.limits); RETURN NULL;",
            ),
            # The notifications are written in the transaction of the end, whatever ends the job.
            pgtrigger.Trigger(
                name="notify_end",
                operation=pgtrigger.UpdateOf("state"),
                when=pgtrigger.After,
                condition=pgtrigger.Condition(
                    "NEW.notify IS NOT NULL AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL"
                ),
                func="PERFORM notify_job_end(NEW); RETURN NULL;",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def waiting_for(self) -> dict[str, Any] | None:
        """Return the event that a step waits for now without a worker, or None."""
        if self.state != JobState.RUNNING or self.wait is None:
            return None
        return {name: self.wait.get(name) for name in WAIT_FIELDS}
