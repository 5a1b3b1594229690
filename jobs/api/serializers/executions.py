"""What the calls about executions take and answer."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers
from rest_framework.settings import api_settings

from controlplane.agent.secret_values import is_secret
from controlplane.core.answers import ModelAnswer
from controlplane.core.lean_bodies import BUILDERS, NotPlain, Reader, object_reader
from controlplane.core.paging import PageFilter
from controlplane.core.rest import AnyField, ChoiceField, IdField, SecondsField, StrictSerializer, TextField, YesNoField
from jobs import graph, scan_window
from jobs.api.serializers.actions import ACTIONS, ActionField
from jobs.api.serializers.jobs import JobRequest, ServerName, one_or_many_schema
from jobs.api.serializers.secrets import NOT_AN_OBJECT, InputsField, MaskedObjectField
from jobs.models import Execution, ExecutionEvent, WorkerJob
from jobs.services import executions
from jobs.states import EventCode, ExecutionState

CONTROL_PLANE_KEY = "_server"


def known_step_actions() -> dict[str, Any]:
    return {**ACTIONS, "execution": ChildAction}


@extend_schema_field(
    PolymorphicProxySerializer(
        component_name="StepAction", serializers=known_step_actions, resource_type_field_name="type"
    )
)
class StepActionField(ActionField):
    """An action, which may be an execution of its own."""

    def known_actions(self) -> dict[str, type[StrictSerializer]]:
        return known_step_actions()


class KeyField(TextField):
    """The name of a step in its execution."""

    def to_internal_value(self, data: object) -> str:
        key = super().to_internal_value(data)
        if "/" in key or key == CONTROL_PLANE_KEY:
            raise serializers.ValidationError(
                f"A key has no slash, and {CONTROL_PLANE_KEY} is the control plane's own."
            )
        return key


class HookRequest(JobRequest):
    key = KeyField(help_text="Its name, unique in the execution.")
    payload = InputsField(  # type: ignore[assignment]
        required=False, help_text="Payload that the code gets, with what failed."
    )
    require_worker = None  # type: ignore[assignment]


class TaskRequest(JobRequest):
    """A job, or a step, which may be an execution of its own."""

    action = StepActionField()

    def validate(self, job: dict[str, Any]) -> dict[str, Any]:
        job = super().validate(job)
        if job["action"]["type"] != "execution":
            return job
        problems = {
            field: [f"What is an execution has no {field}: {why}."]
            for field, why in {
                "timeout_seconds": "give it to the action",
                "max_retries": "give them to its steps",
                "good_until": "it begins at once",
                "available_at": "it begins at once",
            }.items()
            if field in job
        }
        if not isinstance(job.get("payload", {}), dict):
            problems["payload"] = ["Of what is an execution it is an object: its inputs."]
        elif is_secret(job.get("payload")):
            problems["payload"] = [NOT_AN_OBJECT]
        if problems:
            raise serializers.ValidationError(problems)
        return job


class StepRequest(TaskRequest):
    key = KeyField(help_text="Its name, unique in the execution.")
    depends_on = serializers.ListField(
        child=TextField(),
        required=False,
        max_length=graph.STEPS_LIMIT,
        help_text="Keys of the steps that must end first.",
    )
    continue_on_failure = YesNoField(required=False, help_text="Steps that depend on it run even if it fails.")
    require_worker = None  # type: ignore[assignment]


class Definition(StrictSerializer):
    """The steps of an execution, and how they hang together."""

    name = TextField()
    steps = StepRequest(many=True, allow_empty=False)
    on_error = HookRequest(many=True, required=False)
    timeout_seconds = SecondsField(required=False, allow_null=True, min_value=0.001)

    def to_internal_value(self, data: object) -> Any:
        steps = data.get("steps") if isinstance(data, Mapping) else None
        if isinstance(steps, list) and len(steps) > graph.STEPS_LIMIT:
            raise serializers.ValidationError({"steps": [f"{len(steps)} steps; at most {graph.STEPS_LIMIT}."]})
        return super().to_internal_value(data)

    def validate(self, definition: dict[str, Any]) -> dict[str, Any]:
        keys = [step["key"] for step in [*definition["steps"], *definition.get("on_error", [])]]
        if repeated := graph.repeated_keys(keys):
            raise serializers.ValidationError({"steps": [f"More than one has the key: {graph.join_words(repeated)}."]})
        needs = {step["key"]: step.get("depends_on", []) for step in definition["steps"]}
        if problems := graph.dependency_problems(needs):
            raise serializers.ValidationError({"steps": problems})
        return definition


def definition_reader(serializer: Definition) -> Reader:
    read_definition = object_reader(serializer)

    def read(data: Any) -> Any:
        steps = data.get("steps") if type(data) is dict else None
        if type(steps) is not list or len(steps) > graph.STEPS_LIMIT:
            raise NotPlain
        return read_definition(data)

    return read


BUILDERS[Definition.to_internal_value] = definition_reader


def refuse_oversized_inputs(field: str, size: int) -> None:
    """Raises ValidationError when a submission would be stored as too much; see executions.handed_on."""
    if size > executions.PAYLOAD_BYTES_LIMIT:
        limit = executions.PAYLOAD_BYTES_LIMIT
        why = f"With what is handed to steps and children, {size} bytes are stored; at most {limit}."
        raise serializers.ValidationError({field: [why]})


class ChildAction(Definition):
    type = ChoiceField(["execution"])


class ExecutionRequest(Definition):
    inputs = InputsField(required=False, help_text="Payload of the steps that have none of their own.")
    require_worker = YesNoField(
        required=False, help_text="Refuse it (503) when no worker may run one of its steps now."
    )
    key = TextField(required=False, help_text="Idempotency key: the same key again returns the same execution.")

    def validate(self, definition: dict[str, Any]) -> dict[str, Any]:
        definition = super().validate(definition)
        refuse_oversized_inputs("inputs", executions.count_payload_bytes(definition, definition.get("inputs", {})))
        return definition


class SubmissionRequest(TaskRequest):
    """A job of its own."""

    def validate(self, job: dict[str, Any]) -> dict[str, Any]:
        job = super().validate(job)
        refuse_oversized_inputs("payload", handed_on(job))
        return job


def handed_on(job: dict[str, Any]) -> int:
    return (
        executions.count_payload_bytes(job["action"], job.get("payload", {}))
        if job["action"]["type"] == "execution"
        else 0
    )


class JobList(serializers.ListSerializer):
    """Up to 1000 jobs; errors say which by its place."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=SubmissionRequest(), max_length=1000, **options)

    def validate(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        refuse_oversized_inputs(api_settings.NON_FIELD_ERRORS_KEY, sum(map(handed_on, jobs)))
        return jobs


SUBMISSION = one_or_many_schema("Submission", SubmissionRequest, SubmissionRequest(many=True))


class StepAnswer(ModelAnswer):
    key = serializers.CharField(source="step")
    job = serializers.UUIDField(source="id")
    action = MaskedObjectField()
    depends_on = serializers.ListField(child=serializers.CharField())
    child = serializers.UUIDField(source="child_execution", allow_null=True, help_text="The execution that it is.")
    server = ServerName(allow_null=True, help_text="The server that has it now.")
    kept = serializers.BooleanField(
        source="is_kept", help_text="The earlier run had completed it: its output is that one's, it does not run again."
    )
    restart_of = serializers.UUIDField(
        source="restart_of_id", allow_null=True, help_text="Of a restart: the job of this step in the earlier run."
    )
    output = AnyField()
    error = AnyField()
    left_out = serializers.ListField(
        child=serializers.CharField(),
        help_text="Of output and error what is too much for one answer: null then, or of an error its code. The job of"
        " the step has it.",
    )

    class Meta:
        model = WorkerJob
        fields = (
            "key", "job", "state", "action", "depends_on", "continue_on_failure", "child", "server", "attempt_count",
            "resubmissions", "retries", "kept", "restart_of", "output", "error", "left_out", "available_at",
            "finished_at",
        )  # fmt: skip


class Parent(serializers.Serializer):
    job = serializers.UUIDField()
    execution = serializers.UUIDField(allow_null=True, help_text="Null: the job is no step.")
    step = serializers.CharField(allow_null=True)


class ExecutionSummary(ModelAnswer):
    error = AnyField()
    steps = serializers.DictField(source="counts", child=serializers.IntegerField(), help_text="How many, by state.")
    parent = Parent(allow_null=True)
    trigger = serializers.UUIDField(source="trigger_id", allow_null=True)
    rerun_of = serializers.UUIDField(source="rerun_of_id", allow_null=True)

    class Meta:
        model = Execution
        fields = (
            "id", "name", "namespace", "state", "key", "timeout_seconds", "error", "parent", "trigger", "rerun_of",
            "cancel_requested_at", "created_at", "finished_at", "steps",
        )  # fmt: skip


class ExecutionAnswer(ExecutionSummary):
    inputs = MaskedObjectField()
    steps = StepAnswer(many=True, source="own_steps")  # type: ignore[assignment]
    on_error = StepAnswer(many=True, source="hooks")

    class Meta(ExecutionSummary.Meta):
        fields = (*ExecutionSummary.Meta.fields, "on_error", "inputs")  # type: ignore[assignment]


class ExecutionPage(serializers.Serializer):
    items = ExecutionSummary(many=True)
    next = serializers.CharField(allow_null=True, help_text="The cursor of the next page; null: there is none.")


class ExecutionFilter(PageFilter):
    """Which executions, and which page of them."""

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
    last = serializers.CharField(help_text="The cursor behind the last item: use it to read what is written later.")
