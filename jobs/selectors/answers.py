"""Reads the steps that wait for answers of people."""

from django.db.models import QuerySet

from controlplane.core.model_fields import ClockTimestamp
from jobs.models import WorkerJob
from jobs.states import JobState


def waiting_answers() -> QuerySet[WorkerJob]:
    """Return the steps that wait for an answer, those that wait longest first, with their execution and `now`."""
    rows = WorkerJob.objects.filter(state=JobState.RUNNING, wait__what="answer").annotate(now=ClockTimestamp())
    shown = ("namespace", "state", "step", "wait", "available_at", "execution__name")
    return rows.select_related("execution").only(*shown).order_by("pk")
