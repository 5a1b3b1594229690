"""What the calls about batches take and answer: an action on many at once."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
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
from jobs.api.serializers.executions import ExecutionFilter
from jobs.api.serializers.jobs import JobFilter
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
OPERATION_NAMES = sorted(OPERATIONS.keys() - {"resubmit_job_again"})
"""One that was resubmitted before is resubmitted with `force`."""
ONCE = {"resubmit_job", "rerun_execution", "restart_execution", "evaluate_trigger"}
"""They make something, and take a key by which it is made once; that of a batch is its id."""

OPTIONS = {
    "keep_checkpoint": ("resubmit_job",), "force": ("resubmit_job",), "reason": ("fail_job",),
    "deadline_seconds": ("drain_server",), "duration_seconds": ("cordon_server", "drain_server"),
}  # fmt: skip
"""What may be said of some operations alone."""


class BatchRequest(StrictSerializer):
    operation = ChoiceField(OPERATION_NAMES, help_text="What is done to each.")
    ids = serializers.ListField(
        child=IdField(), required=False, min_length=1, max_length=IDS_LIMIT, help_text="To which it is done."
    )
    filter = AnyField(
        required=False,
        help_text="Or the filter of the list of such, as an object: it is done to all that match, as they are now."
        ' {} is all there are. In a namespace: `?namespace=`. Example: {"state": "FAILED", "tag": "gpu"}.',
    )
    note = NoteField(required=True)
    keep_checkpoint = YesNoField(required=False, help_text="Of resubmit_job (default: true).")
    force = YesNoField(required=False, help_text="Of resubmit_job: even those that were resubmitted before.")
    reason = NoteField(required=False, allow_blank=True, help_text="Of fail_job: message of the jobs' error.")
    deadline_seconds = SecondsField(
        required=False, help_text="Of drain_server: to finish what it holds; its grace period by default."
    )
    duration_seconds = SecondsField(
        required=False, help_text="Of cordon_server and drain_server: then each gets work again by itself."
    )

    def validate(self, body: dict[str, Any]) -> dict[str, Any]:
        if ("ids" in body) == ("filter" in body):
            raise serializers.ValidationError({"ids": ["Either ids or a filter is needed, and not both."]})
        wrong = {
            name: [f"This is of {' and '.join(operations)}."]
            for name, operations in OPTIONS.items()
            if name in body and body["operation"] not in operations
        }
        if wrong:
            raise serializers.ValidationError(wrong)
        if "filter" in body:
            self.filter_of_subject(body)
        return body

    @staticmethod
    def filter_of_subject(body: Mapping[str, Any]) -> PageFilter:
        """The filter of the list of what is acted on. Raises ValidationError."""
        given = body["filter"]
        if not isinstance(given, dict):
            raise serializers.ValidationError({"filter": ["This is an object."]})
        if wrong := [name for name in NO_FILTERS if name in given]:
            raise serializers.ValidationError({"filter": [f"{', '.join(wrong)}: no filter of a batch."]})
        filter = FILTERS[OPERATIONS[body["operation"]].subject](data=given)
        if not filter.is_valid():
            raise serializers.ValidationError({"filter": filter.errors})
        return filter

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Of these rows those that are acted on."""
        body = self.validated_data
        return rows.filter(pk__in=body["ids"]) if "ids" in body else self.filter_of_subject(body).match_rows(rows)

    @property
    def parameters(self) -> dict[str, Any]:
        """What the service of the operation takes."""
        body = self.validated_data
        given = {
            "force": body.get("force"), "reason": body.get("reason"), "deadline": body.get("deadline_seconds"),
            "duration": body.get("duration_seconds"),
        }  # fmt: skip
        parameters = {name: value for name, value in given.items() if value is not None}
        if body.get("keep_checkpoint") is False:
            parameters["drop_checkpoint"] = True
        return parameters | ({"key": ""} if body["operation"] in ONCE else {})

    @property
    def query(self) -> str:
        """The filter as it stands in an address."""
        return urlencode(sorted(self.validated_data.get("filter", {}).items()))

    @property
    def chosen(self) -> str:
        if "ids" in self.validated_data:
            return "chosen by id"
        words = [f"{name} {value}" for name, value in sorted(self.validated_data["filter"].items())]
        return ", ".join(words) or "all there are"


class BatchSummary(ModelAnswer):
    operation = serializers.CharField(help_text="What is done to each.")
    subject = ChoiceField(list(Subject), source="subject_type", help_text="What the items are.")
    state = ChoiceField(BatchState.choices())
    chosen = serializers.CharField(help_text="How the items were chosen, in words.")
    done = serializers.IntegerField(help_text="To how many it was done.")
    refused = serializers.IntegerField(help_text="To how many it did not apply any more.")
    pending = serializers.SerializerMethodField(help_text="How many have no outcome yet.")
    stopped_by = serializers.CharField(help_text="Empty: nobody has stopped it.")

    class Meta:
        model = Batch
        fields = (
            "id", "operation", "subject", "state", "chosen", "query", "actor", "note", "total", "done", "refused",
            "pending", "created_at", "finished_at", "stopped_by",
        )  # fmt: skip

    def get_pending(self, batch: Batch) -> int:
        return batch.total - batch.done - batch.refused


class ItemAnswer(ModelAnswer):
    subject = serializers.UUIDField(source="subject_id", help_text="What it is done to.")
    outcome = ChoiceField(ItemOutcome.choices())
    reason = serializers.CharField(help_text="Why it was refused.")
    result = serializers.UUIDField(
        source="result_id", allow_null=True, help_text="What it was submitted again as, or run again as."
    )
    at = TimeField(allow_null=True, help_text="When it got its outcome.")

    class Meta:
        model = BatchItem
        fields = ("subject", "outcome", "reason", "result", "at")


class Refusal(serializers.Serializer):
    reason = serializers.CharField()
    items = serializers.IntegerField()


class BatchAnswer(BatchSummary):
    refusals = Refusal(many=True, help_text="Why items were refused, and how many for each; the most frequent first.")
    items = ItemAnswer(many=True, help_text="A page of them, in the order in which they are done.")
    next = serializers.CharField(allow_null=True, help_text="The cursor of the next page of items; null: none.")

    class Meta(BatchSummary.Meta):
        fields = (*BatchSummary.Meta.fields, "refusals", "items", "next")  # type: ignore[assignment]


class BatchPage(serializers.Serializer):
    items = BatchSummary(many=True)
    next = serializers.CharField(allow_null=True, help_text="The cursor of the next page; null: there is none.")


class BatchFilter(PageFilter):
    """Which batches, and which page of them."""

    namespace = None  # type: ignore[assignment]
    state = ChoiceField(BatchState.choices(), required=False)
    operation = ChoiceField(OPERATION_NAMES, required=False)

    def match_rows(self, rows: QuerySet[Batch]) -> QuerySet[Batch]:
        given = self.validated_data
        return rows.filter(**{name: given[name] for name in ("state", "operation") if name in given})


class ItemFilter(StrictSerializer):
    """Which page of the items of a batch."""

    outcome = ChoiceField(ItemOutcome.choices(), required=False)
    cursor = serializers.IntegerField(
        default=0, min_value=0, max_value=2**63 - 1, help_text="`next` of the page before."
    )
    limit = PageSizeField()

    def page(self, items: QuerySet[BatchItem]) -> dict[str, Any]:
        given = self.validated_data
        items = items.filter(outcome=given["outcome"]) if "outcome" in given else items
        rows = list(items.filter(pk__gt=given["cursor"]).order_by("pk")[: given["limit"] + 1])
        page = rows[: given["limit"]]
        return {"items": page, "next": str(page[-1].pk) if len(rows) > len(page) else None}


EXAMPLES = [
    OpenApiExample(
        "Resubmit all that failed for want of a GPU",
        {"operation": "resubmit_job", "filter": {"state": "FAILED", "tag": "gpu"}, "note": "the cards are back"},
        request_only=True,
    ),
    OpenApiExample(
        "Drain two servers",
        {
            "operation": "drain_server",
            "ids": ["01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"],
            "deadline_seconds": 600,
            "note": "new kernel",
        },
        request_only=True,
    ),
]
