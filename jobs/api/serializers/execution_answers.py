"""Serializers of executions, steps and events in responses."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.paging import PageFilter
from controlplane.core.rest import AnyField, ChoiceField, IdField, TextField
from jobs import scan_window
from jobs.api.serializers.attempts import ServerName
from jobs.api.serializers.deadlines import DEADLINE_FIELDS, LateFlag
from jobs.api.serializers.limits import LimitedAnswer
from jobs.api.serializers.loops import LoopAnswer
from jobs.api.serializers.notify import NotifyAnswer
from jobs.api.serializers.progress import ProgressField
from jobs.api.serializers.secrets import MaskedField, MaskedObjectField
from jobs.api.serializers.waits import WaitAnswer
from jobs.choices import HookOf
from jobs.models import Execution, ExecutionEvent, WorkerJob
from jobs.states import EventCode, ExecutionState

HOOKS = [hook.value for hook in HookOf]


class StepAnswer(LoopAnswer):
    key = serializers.CharField(source="step")
    job = serializers.UUIDField(source="id")
    action = MaskedObjectField()
    depends_on = serializers.ListField(child=serializers.CharField())
    child = serializers.UUIDField(source="child_execution", allow_null=True, help_text="Execution that this step runs.")
    server = ServerName(allow_null=True, help_text="Server that holds it now.")
    when = serializers.CharField(source="condition", allow_null=True, help_text="Condition; null: it has none.")
    kept = serializers.BooleanField(
        source="is_kept",
        help_text="True: the earlier run had completed it. It has that output and does not run again.",
    )
    restart_of = serializers.UUIDField(
        source="restart_of_id",
        allow_null=True,
        help_text="Job of this step in the earlier run, if the execution is a restart.",
    )
    waiting_for = WaitAnswer(allow_null=True, help_text="Event that the step waits for now.")
    output = AnyField()
    error = AnyField()
    left_out = serializers.ListField(
        child=serializers.CharField(),
        help_text="Fields that are too large for this response. An output is null then, and an error has only its code."
        " The job of the step has the whole values.",
    )

    class Meta:
        model = WorkerJob
        fields = (
            "key", "job", "state", "action", "depends_on", "continue_on_failure", "child", "server", "attempt_count",
            "resubmissions", "retries", "when", "run_if_skipped", "kept", "restart_of", "waiting_for", "output",
            "for_each", "max_parallel", "fail_fast", "progress", "error", "left_out", "available_at", "finished_at",
        )  # fmt: skip


class Parent(serializers.Serializer):
    job = serializers.UUIDField()
    execution = serializers.UUIDField(allow_null=True, help_text="Null: the job is not a step.")
    step = serializers.CharField(allow_null=True)


class ExecutionSummary(LimitedAnswer, NotifyAnswer):
    error = AnyField()
    steps = serializers.DictField(
        source="counts", child=serializers.IntegerField(), help_text="Number of steps by state."
    )
    parent = Parent(allow_null=True)
    trigger = serializers.UUIDField(source="trigger_id", allow_null=True)
    rerun_of = serializers.UUIDField(source="rerun_of_id", allow_null=True)
    flags = LateFlag()
    progress = ProgressField()

    class Meta:
        model = Execution
        fields = (
            "id", "name", "namespace", "state", *DEADLINE_FIELDS, "notify", "flags", "key", "timeout_seconds", "error",
            "parent", "trigger", "rerun_of", "limits", "parked_by", "cancel_requested_at", "created_at", "finished_at",
            "sealed", "progress", "steps",
        )  # fmt: skip


class ExecutionAnswer(ExecutionSummary):
    inputs = MaskedObjectField()
    outputs = MaskedField(help_text="Outputs at its end. Null before, and if it defines none.")
    steps: Any = StepAnswer(many=True, source="own_steps")
    on_error, on_success, on_complete = (StepAnswer(many=True) for _ in HookOf)

    class Meta(ExecutionSummary.Meta):
        fields: Any = (*ExecutionSummary.Meta.fields, *HOOKS, "inputs", "outputs")


class ExecutionPage(serializers.Serializer):
    items = ExecutionSummary(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")


class ExecutionFilter(PageFilter):
    """Filter of executions, and page."""

    state = ChoiceField(ExecutionState.choices(), required=False)
    name = TextField(required=False)
    key = TextField(required=False)
    trigger = IdField(required=False)

    def match_rows(self, rows: QuerySet[Execution]) -> QuerySet[Execution]:
        filters = self.validated_data
        executions = rows.filter(
            **{field: filters[field] for field in ("state", "name", "trigger") if field in filters}
        )
        if "key" in filters:
            executions = executions.filter(scan_window.has_key_condition(filters["key"]))
        return executions

    def page(self, rows: QuerySet[Execution], floor: UUID | None = None) -> dict[str, Any]:
        return super().page(self.match_rows(rows), floor)


class EventItem(ModelAnswer):
    code = ChoiceField(EventCode.choices())
    server = serializers.UUIDField(source="server_id", allow_null=True)

    class Meta:
        model = ExecutionEvent
        fields = ("at", "code", "step", "server", "line")


class EventPage(serializers.Serializer):
    items = EventItem(many=True, help_text="Oldest first.")
    next = serializers.CharField(allow_null=True)
    last = serializers.CharField(help_text="Cursor after the last item; use it to read later items.")
