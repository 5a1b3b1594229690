"""Requests and responses of the calls about bulk actions."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.json_bodies import read_json, write_json
from controlplane.core.paging import PageFilter, PageSizeField
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    IdField,
    NoteField,
    SecondsField,
    StrictSerializer,
    TimeField,
    YesNoField,
)
from jobs.api.serializers.changes import JobChanges
from jobs.api.serializers.execution_answers import ExecutionFilter
from jobs.api.serializers.job_filter import JobFilter
from jobs.api.serializers.triggers import TriggerFilter
from jobs.models import Batch, BatchItem
from jobs.services.operator_actions import OPERATIONS
from jobs.states import BatchState, ItemOutcome
from liveness.api.serializers.servers import ServerFilter
from liveness.states import Subject

FILTERS: dict[Subject, type[PageFilter]] = {
    Subject.SERVER: ServerFilter,
    Subject.JOB: JobFilter,
    Subject.EXECUTION: ExecutionFilter,
    Subject.TRIGGER: TriggerFilter,
}
NO_FILTERS = ("cursor", "limit", "namespace")
IDS_LIMIT = 10_000
OPERATION_NAMES = sorted(OPERATIONS.keys() - {"resubmit_job_again", "dump_stack"})
"""Names of operations. `resubmit_job_again` is `resubmit_job` with `force` here. A stack is read by a person."""
ONCE = {"resubmit_job", "rerun_execution", "restart_execution", "evaluate_trigger"}
"""Operations that create an object and take an idempotency key. In a bulk action, the action's id is part of each
key."""

OPTIONS = {
    "keep_checkpoint": ("resubmit_job",), "force": ("resubmit_job",), "reason": ("fail_job",),
    "changes": ("change_job",),
    "deadline_seconds": ("drain_server",), "duration_seconds": ("cordon_server", "drain_server"),
}  # fmt: skip
"""Fields that only some operations have."""


class BatchRequest(StrictSerializer):
    operation = ChoiceField(OPERATION_NAMES, help_text="Action on each item.")
    ids = serializers.ListField(
        child=IdField(), required=False, min_length=1, max_length=IDS_LIMIT, help_text="Ids of the items."
    )
    filter = AnyField(
        required=False,
        help_text="Filter of the list of these objects, as an object, instead of `ids`. All that match now are items."
        ' {} means all. For a namespace use `?namespace=`. Example: {"state": "FAILED", "tag": "gpu"}.',
    )
    note = NoteField(required=True)
    keep_checkpoint = YesNoField(required=False, help_text="For resubmit_job (default: true).")
    force = YesNoField(required=False, help_text="For resubmit_job: also jobs that were resubmitted before.")
    reason = NoteField(required=False, allow_blank=True, help_text="For fail_job: message of the jobs' error.")
    changes = JobChanges(required=False, help_text="For change_job: fields and their new values.")
    deadline_seconds = SecondsField(
        required=False,
        help_text="For drain_server: seconds to finish its attempts. Default: the grace period of the server.",
    )
    duration_seconds = SecondsField(
        required=False,
        help_text="For cordon_server and drain_server: seconds after which the server gets work again.",
    )

    def validate(self, body: dict[str, Any]) -> dict[str, Any]:
        if ("ids" in body) == ("filter" in body):
            raise serializers.ValidationError({"ids": ["Give either ids or a filter."]})
        wrong = {
            name: [f"Only {' and '.join(operations)} may have this field."]
            for name, operations in OPTIONS.items()
            if name in body and body["operation"] not in operations
        }
        if wrong:
            raise serializers.ValidationError(wrong)
        if body["operation"] == "change_job" and "changes" not in body:
            raise serializers.ValidationError({"changes": ["Give the fields to change and their new values."]})
        if "filter" in body:
            self.filter_of_subject(body)
        return body

    @staticmethod
    def filter_of_subject(body: Mapping[str, Any]) -> PageFilter:
        """Return the validated filter of the objects of the operation. Raise ValidationError."""
        given = body["filter"]
        if not isinstance(given, dict):
            raise serializers.ValidationError({"filter": ['A filter is an object, like {"state": "FAILED"}.']})
        if wrong := [name for name in NO_FILTERS if name in given]:
            raise serializers.ValidationError({"filter": [f"A bulk action cannot filter by {', '.join(wrong)}."]})
        filter = FILTERS[OPERATIONS[body["operation"]].subject](data=given)
        if not filter.is_valid():
            raise serializers.ValidationError({"filter": filter.errors})
        return filter

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Filter rows by the ids or the filter of the request."""
        body = self.validated_data
        return rows.filter(pk__in=body["ids"]) if "ids" in body else self.filter_of_subject(body).match_rows(rows)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the operation's service."""
        body = self.validated_data
        given = {
            "force": body.get("force"), "reason": body.get("reason"), "deadline": body.get("deadline_seconds"),
            "duration": body.get("duration_seconds"),
        }  # fmt: skip
        parameters = {name: value for name, value in given.items() if value is not None}
        if body.get("keep_checkpoint") is False:
            parameters["drop_checkpoint"] = True
        if "changes" in body:
            # Values are in JSON form, because the parameters of a batch are compared with those of a repeated call.
            parameters["changes"] = read_json(write_json(body["changes"]))
        return parameters | ({"key": ""} if body["operation"] in ONCE else {})

    @property
    def query(self) -> str:
        """Return the filter as a query string."""
        return urlencode(sorted(self.validated_data.get("filter", {}).items()))

    @property
    def chosen(self) -> str:
        if "ids" in self.validated_data:
            return "chosen by id"
        words = [f"{name} {value}" for name, value in sorted(self.validated_data["filter"].items())]
        return ", ".join(words) or "all"


class BatchSummary(ModelAnswer):
    operation = serializers.CharField(help_text="Action on each item.")
    subject = ChoiceField(list(Subject), source="subject_type", help_text="Type of the items.")
    state = ChoiceField(BatchState.choices())
    chosen = serializers.CharField(help_text="Description of how the items were chosen.")
    done = serializers.IntegerField(help_text="Number of items to which the action was applied.")
    refused = serializers.IntegerField(help_text="Number of items to which it no longer applied.")
    pending = serializers.SerializerMethodField(help_text="Number of items without an outcome.")
    stopped_by = serializers.CharField(help_text="Actor who stopped it; empty: not stopped.")

    class Meta:
        model = Batch
        fields = (
            "id", "operation", "subject", "state", "chosen", "query", "actor", "note", "total", "done", "refused",
            "pending", "created_at", "finished_at", "stopped_by",
        )  # fmt: skip

    def get_pending(self, batch: Batch) -> int:
        return batch.total - batch.done - batch.refused


class ItemAnswer(ModelAnswer):
    subject = serializers.UUIDField(source="subject_id", help_text="Id of the object.")
    outcome = ChoiceField(ItemOutcome.choices())
    reason = serializers.CharField(help_text="Reason of a refusal.")
    result = serializers.UUIDField(
        source="result_id", allow_null=True, help_text="Id of the new job or execution, if the action created one."
    )
    at = TimeField(allow_null=True, help_text="Time of the outcome.")

    class Meta:
        model = BatchItem
        fields = ("subject", "outcome", "reason", "result", "at")


class Refusal(serializers.Serializer):
    reason = serializers.CharField()
    items = serializers.IntegerField()


class BatchAnswer(BatchSummary):
    refusals = Refusal(many=True, help_text="Reasons of refusals with their number of items, most frequent first.")
    items = ItemAnswer(many=True, help_text="Page of items, in the order in which they are processed.")
    next = serializers.CharField(
        allow_null=True, help_text="Cursor of the next page of items; null: this is the last page."
    )

    class Meta(BatchSummary.Meta):
        fields: Any = (*BatchSummary.Meta.fields, "refusals", "items", "next")


class BatchPage(serializers.Serializer):
    items = BatchSummary(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")


class BatchFilter(PageFilter):
    """Filter of bulk actions, and page."""

    namespace: Any = None
    state = ChoiceField(BatchState.choices(), required=False)
    operation = ChoiceField(OPERATION_NAMES, required=False)

    def match_rows(self, rows: QuerySet[Batch]) -> QuerySet[Batch]:
        given = self.validated_data
        return rows.filter(**{name: given[name] for name in ("state", "operation") if name in given})


class ItemFilter(StrictSerializer):
    """Page of the items of a bulk action."""

    outcome = ChoiceField(ItemOutcome.choices(), required=False)
    cursor = serializers.IntegerField(
        default=0, min_value=0, max_value=2**63 - 1, help_text="`next` of the previous page."
    )
    limit = PageSizeField()

    def page(self, items: QuerySet[BatchItem]) -> dict[str, Any]:
        given = self.validated_data
        items = items.filter(outcome=given["outcome"]) if "outcome" in given else items
        rows = list(items.filter(pk__gt=given["cursor"]).order_by("pk")[: given["limit"] + 1])
        page = rows[: given["limit"]]
        return {"items": page, "next": str(page[-1].pk) if len(rows) > len(page) else None}
