"""What the calls of clients take and answer."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.paging import PageFilter
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    FreeTextField,
    NoteField,
    SecondsField,
    StrictSerializer,
    TextField,
    TimeField,
    WholeField,
    YesNoField,
)
from jobs import scan_window
from jobs.api.serializers.actions import ActionField, PriorityField
from jobs.api.serializers.secrets import MaskedField, MaskedObjectField, refuse_wrong_payload
from jobs.models import Attempt, LateReport, WorkerJob
from jobs.selectors.contents import LARGE
from jobs.selectors.jobs import jobs_with_flags
from jobs.selectors.timeline import job_timeline
from jobs.states import Flag, JobKind, JobState, OnWorkerLost, RetryBackoff, Unmatched
from liveness.api.serializers.registration import TagList

TRACEPARENT = r"\A00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z"
"""Version 00 of W3C's Trace Context."""


class JobRequest(StrictSerializer):
    name = TextField(required=False, max_length=200, help_text="What people call it; else its action names it.")
    action = ActionField()
    payload = AnyField(required=False, help_text="Payload that the code gets.")
    tags = TagList(required=False, help_text="Tags that a worker must have, all of them, besides those of the action.")
    priority = PriorityField(required=False, help_text="Higher first.")
    timeout_seconds = SecondsField(required=False, allow_null=True, min_value=0.001)
    available_at = TimeField(required=False, help_text="It is not claimed before this time.")
    good_until = TimeField(required=False, allow_null=True, help_text="If it still waits at this time, it is EXPIRED.")
    on_worker_lost = ChoiceField(OnWorkerLost.choices(), required=False)
    unmatched = ChoiceField(
        Unmatched.choices(),
        required=False,
        help_text="What to do when no worker alive has its tags;"
        " one to fail is refused at once (409, `no_runner`) when no worker of the fleet takes such an action.",
    )
    max_retries = WholeField(
        required=False, min_value=0, max_value=1000, help_text="How often it is retried after an error of its code."
    )
    retry_delay_seconds = SecondsField(required=False)
    retry_backoff = ChoiceField(RetryBackoff.choices(), required=False)
    retry_on = serializers.ListField(
        child=FreeTextField(), max_length=100, required=False, allow_null=True,
        help_text="Error codes after which it is retried; null: every error of its code.",
    )  # fmt: skip
    require_worker = YesNoField(required=False, help_text="Refuse it (503) when no worker may run it now.")
    key = TextField(required=False, help_text="Idempotency key: the same key again returns the same job.")
    traceparent = serializers.RegexField(
        TRACEPARENT, required=False, allow_null=True,
        help_text="The trace in which it is submitted; otherwise that of the header `traceparent`.",
    )  # fmt: skip

    def validate(self, job: dict[str, Any]) -> dict[str, Any]:
        until, since = job.get("good_until"), job.get("available_at")
        if until is not None and since is not None and until <= since:
            raise serializers.ValidationError({"good_until": ["It must be after available_at."]})
        refuse_wrong_payload(job["action"], job.get("payload"))
        return job


class ServerName(serializers.Serializer):
    id = serializers.UUIDField()
    name = serializers.CharField()


class TimelineEntry(serializers.Serializer):
    attempt = serializers.IntegerField(allow_null=True, help_text="Null: of the job itself.")
    state = serializers.CharField()
    at = TimeField()
    server = ServerName(allow_null=True)
    reason = serializers.CharField()


class AttemptAnswer(ModelAnswer):
    error = AnyField()
    left_out = serializers.ListField(
        child=serializers.CharField(),
        help_text="error: of many attempts with much to say, only its code is here of all but the last.",
    )
    server = serializers.SerializerMethodField()

    class Meta:
        model = Attempt
        fields = (
            "id", "number", "server", "state", "claimed_at", "started_at", "finished_at", "heartbeat_at", "progress",
            "message", "error", "left_out",
        )  # fmt: skip

    @extend_schema_field(ServerName)
    def get_server(self, attempt: Attempt) -> dict[str, Any]:
        return {"id": attempt.server_id, "name": attempt.server.name}


class LateReportAnswer(ModelAnswer):
    attempt = serializers.SerializerMethodField()

    class Meta:
        model = LateReport
        fields = ("attempt", "event", "at", "reason", "more")

    def get_attempt(self, report: LateReport) -> str:
        return str(report.attempt_id)


class JobAnswer(ModelAnswer):
    action = MaskedObjectField()
    payload = MaskedField()
    output = AnyField()
    error = AnyField()
    attempts = AttemptAnswer(many=True)
    timeline = serializers.SerializerMethodField()
    late_reports = LateReportAnswer(many=True)
    flags = serializers.ListField(
        child=ChoiceField(Flag.choices()),
        help_text="Why it stands still until somebody acts: held_by_lost_server (RUNNING on a server that is"
        " lost, under NEVER), waits_for_tags (no alive worker has its tags), refused_by_all (every alive worker that"
        " has them gave it back as not allowed), waits_after_loss (a worker that had it is gone; it waits for more).",
    )
    left_out = serializers.ListField(
        child=serializers.CharField(),
        help_text=f"Of action, payload, output, error and checkpoint those that a list leaves out, for they have"
        f" more than {LARGE} bytes of JSON: null then, or of an action its type, of an error its code. The"
        " job alone has them whole.",
    )
    execution = serializers.UUIDField(source="execution_id", allow_null=True, help_text="Null: it is no step of one.")
    resubmission_of = serializers.UUIDField(
        source="resubmission_of_id", allow_null=True, help_text="The ended job it repeats."
    )
    resubmitted_as = serializers.UUIDField(allow_null=True, help_text="The latest job that it was resubmitted as.")
    child = serializers.UUIDField(source="child_execution", allow_null=True, help_text="The execution that it is.")

    class Meta:
        model = WorkerJob
        fields = (
            "id", "name", "namespace", "kind", "state", "flags", "action", "payload", "tags", "required_tags",
            "priority", "timeout_seconds",
            "on_worker_lost", "unmatched", "max_retries", "retry_delay_seconds", "retry_backoff", "retry_on",
            "resubmissions", "retries", "resubmission_of", "resubmitted_as", "cancel_requested_at", "execution", "step",
            "child", "key", "traceparent",
            "output", "error", "checkpoint", "checkpoint_at", "created_at", "available_at", "good_until", "finished_at",
            "attempts", "timeline", "late_reports", "left_out",
        )  # fmt: skip

    @extend_schema_field(TimelineEntry(many=True))
    def get_timeline(self, job: WorkerJob) -> list[dict[str, Any]]:
        return job_timeline(job)


class JobAnswers(serializers.Serializer):
    items = JobAnswer(many=True, help_text="In the order of the request.")


class JobPage(serializers.Serializer):
    items = JobAnswer(many=True)
    next = serializers.CharField(
        allow_null=True,
        help_text="The cursor of the next page; null: there is none. Where jobs are looked through, so many at once (by"
        " `tag`, or TASK or CELERY by `kind`), a page may have less than `limit`, even nothing, and still a next.",
    )


class JobFilter(PageFilter):
    """Which jobs, and which page of them."""

    state = ChoiceField(JobState.choices(), required=False)
    kind = ChoiceField(JobKind.choices(), required=False)
    key = TextField(required=False)
    tag = TextField(
        required=False, max_length=100, help_text="A tag that a worker must have, including those of the action."
    )

    def match_rows(self, rows: QuerySet[WorkerJob]) -> QuerySet[WorkerJob]:
        filters = self.validated_data
        rows = rows.filter(**{field: filters[field] for field in ("state", "kind") if field in filters})
        if "key" in filters:
            rows = rows.filter(scan_window.has_key_condition(filters["key"]))
        return rows.filter(required_tags__contains=[filters["tag"]]) if "tag" in filters else rows

    def page(self, rows: QuerySet[WorkerJob], floor: UUID | None = None) -> dict[str, Any]:
        """Of what no index finds so many rows at once."""
        filters = self.validated_data
        jobs, state = scan_window.filter_by_kind(rows, filters.get("kind")), filters.get("state")
        if "key" in filters:
            jobs = jobs.filter(scan_window.has_key_condition(filters["key"]))
        if "tag" in filters or filters.get("kind") in (JobKind.TASK, JobKind.CELERY):
            jobs, floor = scan_window.next_scan_window(jobs, filters.get("cursor"), state)
        elif state:
            jobs = jobs.filter(state=state)
        if "kind" in filters:
            jobs = jobs.filter(kind=filters["kind"])
        if "tag" in filters:
            jobs = jobs.filter(required_tags__contains=[filters["tag"]])
        page = super().page(jobs, floor)
        return {**page, "items": jobs_with_flags(page["items"])}


class NoteRequest(StrictSerializer):
    """Of a call that is made by hand."""

    note = NoteField()


class ResubmitRequest(NoteRequest):
    keep_checkpoint = YesNoField(
        default=True, help_text="False: drop the checkpoint, so that the next attempt starts from the beginning."
    )
    force = YesNoField(default=False, help_text="Even if it was resubmitted before.")


class FailRequest(NoteRequest):
    reason = NoteField(required=False, allow_blank=True, help_text="Message of the job's error (default: the note).")


class Candidate(serializers.Serializer):
    server = ServerName()
    load = serializers.FloatField(help_text="Attempts that it holds, divided by max_concurrent.")
    hint = ChoiceField(
        ["first", "later"],
        help_text="When it is hinted at the job while it waits for work: at once, or a fraction of a second later, if"
        " none of those who are less loaded has claimed it by then.",
    )


class RuledOut(serializers.Serializer):
    server = ServerName()
    filter = serializers.CharField(
        help_text="The first that rules it out: type, state, freshness, cordon, maintenance, tags, refused or capacity."
    )
    detail = serializers.CharField(help_text="For people.")


class WaitingFor(serializers.Serializer):
    what = serializers.CharField(help_text="available_at, or stop: its last attempt may still run on `server`.")
    until = TimeField(allow_null=True)
    server = ServerName(required=False)


class PlacementAnswer(serializers.Serializer):
    eligible = Candidate(many=True, help_text="The least loaded first.")
    ruled_out = RuledOut(many=True)
    waiting_for = WaitingFor(allow_null=True, help_text="No server gets it before that.")


def one_or_many_schema(name: str, one: Any, many: Any) -> PolymorphicProxySerializer:
    """For the OpenAPI document."""
    return PolymorphicProxySerializer(name, serializers=[one, many], resource_type_field_name=None, many=False)


SUBMITTED = one_or_many_schema("Submitted", JobAnswer, JobAnswers)
