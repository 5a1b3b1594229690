"""Serializers of reports about attempts."""

from typing import Any

from rest_framework import serializers

from controlplane.agent.limits import (
    CHECKPOINT_LIMIT,
    LINE_LIMIT,
    MESSAGE_LIMIT,
    REPORT_LINES_LIMIT,
    SIZE_LIMIT,
    STACK_LIMIT,
)
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    FreeTextField,
    IdField,
    NumberField,
    StrictSerializer,
    WholeField,
    YesNoField,
    validate_body,
)
from jobs.api.serializers.jobs import TRACEPARENT
from jobs.models import LogLine
from jobs.services.reports import Report, ReportEvent

SIZE_LIMIT_TEXT = f"At most {SIZE_LIMIT} bytes of compact JSON in UTF-8. Only a report beyond it is refused, with"


class ReportedError(StrictSerializer):
    code = FreeTextField()
    message = FreeTextField(max_length=None, allow_blank=True, default="")
    traceback = FreeTextField(max_length=None, allow_blank=True, required=False)
    exception = FreeTextField(required=False, help_text="Class of a Python exception, as package.module.Class.")


# Fields of an event besides `attempt` and `event`; True means that the field is required.
CARRIES: dict[ReportEvent, dict[str, bool]] = {
    ReportEvent.STARTED: {"traceparent": False},
    ReportEvent.PROGRESS: {"progress": False, "message": False},
    ReportEvent.CHECKPOINT: {"value": True},
    ReportEvent.COMPLETED: {"output": False},
    ReportEvent.FAILED: {"error": True},
    ReportEvent.CANCELLED: {},
    ReportEvent.RELEASED: {"reason": True, "begun": False},
    ReportEvent.LOG: {"stream": True, "lines": True, "sequence": False},
    ReportEvent.STACK: {"text": True},
}


class ReportItem(StrictSerializer):
    attempt = IdField()
    event = ChoiceField(list(ReportEvent))
    output = AnyField(required=False, help_text=f"{SIZE_LIMIT_TEXT} `output_too_large`.")
    error = ReportedError(required=False, help_text=f"{SIZE_LIMIT_TEXT} `error_too_large`.")
    reason = FreeTextField(required=False, max_length=MESSAGE_LIMIT)
    begun = YesNoField(
        required=False,
        help_text="False: the code of the released attempt has not begun, although STARTED was reported. Then the"
        " attempt is RELEASED and not RESUBMITTED.",
    )
    progress = NumberField(required=False, min_value=0, max_value=1)
    message = FreeTextField(required=False, allow_blank=True, max_length=MESSAGE_LIMIT)
    value = AnyField(
        required=False,
        help_text="Checkpoint for the next attempt of the job; null removes it. At most"
        f" {CHECKPOINT_LIMIT} bytes of compact JSON in UTF-8. Only a report beyond it is refused, with"
        " `checkpoint_too_large`, and the earlier checkpoint stays.",
    )
    traceparent = serializers.RegexField(
        TRACEPARENT, required=False, help_text="Span of the attempt. The next attempt gets it for a span link."
    )
    stream = ChoiceField(LogLine.Stream.values, required=False)
    lines = serializers.ListField(
        child=FreeTextField(max_length=LINE_LIMIT, allow_blank=True),
        min_length=1,
        max_length=REPORT_LINES_LIMIT,
        required=False,
    )
    sequence = WholeField(
        required=False, min_value=0, help_text="Ascending number in the attempt. Repeated lines are not stored again."
    )

    text = FreeTextField(
        required=False, max_length=STACK_LIMIT, help_text="Stacks of all threads, for an attempt in `dump`."
    )

    def validate(self, item: dict[str, Any]) -> dict[str, Any]:
        event = ReportEvent(item["event"])
        carries = CARRIES[event]
        problems = {
            field: [f"A report of {event} does not have this field."]
            for field in item
            if field not in {"attempt", "event", *carries}
        }
        problems |= {
            field: [f"A report of {event} needs this field."]
            for field, needed in carries.items()
            if needed and field not in item
        }
        if problems:
            raise serializers.ValidationError(problems)
        return item


class ReportsRequest(StrictSerializer):
    reports = serializers.ListField(child=ReportItem(), max_length=1000)


def to_reports(data: object) -> list[Report]:
    """Return the reports of a `ReportsRequest` body. Raise ValidationError."""
    return [
        Report(**{**item, "event": ReportEvent(item["event"])})
        for item in validate_body(ReportsRequest, data)["reports"]
    ]


class ReportAnswer(serializers.Serializer):
    attempt = serializers.UUIDField()
    accepted = serializers.BooleanField()
    replayed = serializers.BooleanField(help_text="True: the same report was accepted before.")
    state = serializers.CharField(allow_null=True, help_text="Present state of the attempt.")
    code = serializers.CharField(allow_null=True, help_text="Error code of a refusal.")
    detail = serializers.CharField(required=False, help_text="Explanation for people, if the code needs one.")


class ReportsAnswer(serializers.Serializer):
    results = ReportAnswer(many=True)
