"""Requests and responses of the calls about executions."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers
from rest_framework.settings import api_settings

from controlplane.agent.secrets.values import is_secret
from controlplane.core.lean_bodies import BUILDERS, NotPlain, Reader, object_reader
from controlplane.core.rest import ChoiceField, SecondsField, StrictSerializer, TextField, YesNoField
from jobs import graph
from jobs.api.serializers.actions import ACTIONS, ActionField
from jobs.api.serializers.deadlines import WithDeadline
from jobs.api.serializers.jobs import JobRequest, one_or_many_schema
from jobs.api.serializers.limits import LimitsField, find_held_keys
from jobs.api.serializers.loops import LoopRequest
from jobs.api.serializers.notify import WithNotify
from jobs.api.serializers.secrets import NOT_AN_OBJECT, InputsField
from jobs.api.serializers.waits import ApprovalAction, WaitAction
from jobs.choices import HookOf
from jobs.services import drafts, execution_rows, step_data

CONTROL_PLANE_KEY = "_server"
FIELDS_OF_WAITS = {"key", "name", "action", "depends_on", "continue_on_failure", "when", "run_if_skipped"}
"""Fields of a step that waits. The others are about code and workers, and it has neither."""
NO_CODE = f"A step that waits runs no code, so it has only {', '.join(sorted(FIELDS_OF_WAITS))}."


def known_task_actions() -> dict[str, Any]:
    return {**ACTIONS, "execution": ChildAction}


def known_step_actions() -> dict[str, Any]:
    return {**known_task_actions(), "wait": WaitAction, "approval": ApprovalAction}


@extend_schema_field(
    PolymorphicProxySerializer(
        component_name="TaskAction", serializers=known_task_actions, resource_type_field_name="type"
    )
)
class TaskActionField(ActionField):
    """Action of a job, which may be an execution."""

    def known_actions(self) -> dict[str, type[StrictSerializer]]:
        return known_task_actions()


@extend_schema_field(
    PolymorphicProxySerializer(
        component_name="StepAction", serializers=known_step_actions, resource_type_field_name="type"
    )
)
class StepActionField(ActionField):
    """Action of a step, which may be an execution itself, a wait or an approval."""

    def known_actions(self) -> dict[str, type[StrictSerializer]]:
        return known_step_actions()


class KeyField(TextField):
    """Key of a step in its execution."""

    def to_internal_value(self, data: object) -> str:
        key = super().to_internal_value(data)
        if "/" in key or key == CONTROL_PLANE_KEY:
            raise serializers.ValidationError(
                f"A key must not contain a slash, and {CONTROL_PLANE_KEY} is reserved for the control plane."
            )
        return key


class HookRequest(JobRequest):
    key = KeyField(help_text="Key of the step, unique in the execution.")
    payload: Any = InputsField(required=False, help_text="Payload of the code. The failed steps are added to it.")
    require_worker: Any = None
    unique: Any = None
    deadline_seconds: Any = None
    on_deadline: Any = None
    notify: Any = None


class TaskRequest(JobRequest):
    """Job or step. It may be an execution itself."""

    action = TaskActionField()

    def validate(self, job: dict[str, Any]) -> dict[str, Any]:
        job = super().validate(job)
        if job["action"]["type"] != "execution":
            return job
        problems = {
            field: [f"An execution has no {field}: {why}."]
            for field, why in {
                "timeout_seconds": "give it to the action",
                "deadline_seconds": "give it to the action",
                "max_retries": "give them to its steps",
                "good_until": "it starts at once",
                "available_at": "it starts at once",
                "limits": "give them to its action",
                "worker_slots": "give them to its steps",
            }.items()
            if field in job
        }
        if not isinstance(job.get("payload", {}), dict):
            problems["payload"] = ["The payload of an execution must be an object: its inputs."]
        elif is_secret(job.get("payload")):
            problems["payload"] = [NOT_AN_OBJECT]
        if problems:
            raise serializers.ValidationError(problems)
        return job


class StepRequest(LoopRequest, TaskRequest):
    action: Any = StepActionField()
    key = KeyField(help_text="Key of the step, unique in the execution.")
    depends_on = serializers.ListField(
        child=TextField(),
        required=False,
        max_length=graph.STEPS_LIMIT,
        help_text="Keys of the steps that must end first.",
    )
    continue_on_failure = YesNoField(required=False, help_text="True: steps that depend on it run even if it fails.")
    when = TextField(
        required=False,
        max_length=step_data.PATH_LENGTH,
        help_text="SQL/JSON path that must be true when the step could begin, like `$.steps.check.output.rows > 0`."
        " If it is false the step is SKIPPED.",
    )
    run_if_skipped = YesNoField(
        required=False, help_text="True: it runs even if a step that it depends on was skipped by a condition."
    )
    require_worker: Any = None
    unique: Any = None

    def validate(self, step: dict[str, Any]) -> dict[str, Any]:
        step = super().validate(step)
        if drafts.is_waiting(step) and (of_code := sorted(step.keys() - FIELDS_OF_WAITS)):
            raise serializers.ValidationError({name: [NO_CODE] for name in of_code})
        return step


class Definition(WithDeadline, WithNotify):
    """Steps of an execution, with their dependencies and hooks."""

    name = TextField()
    steps = StepRequest(many=True, allow_empty=False)
    on_error, on_success, on_complete = (
        HookRequest(many=True, required=False, help_text=f"Hooks: steps that run afterwards. {hook.meaning}")
        for hook in HookOf
    )
    timeout_seconds = SecondsField(required=False, allow_null=True, min_value=0.001)
    limits = LimitsField(
        required=False, help_text="Keys of limits, as of a job. It holds their slots from its start to its end."
    )
    outputs = serializers.DictField(
        required=False,
        help_text='Outputs of the execution: references like `{"total": {"from": "$.steps.sum.output"}}`.',
    )

    def to_internal_value(self, data: object) -> Any:
        steps = data.get("steps") if isinstance(data, Mapping) else None
        if isinstance(steps, list) and len(steps) > graph.STEPS_LIMIT:
            raise serializers.ValidationError(
                {"steps": [f"There are {len(steps)} steps, but at most {graph.STEPS_LIMIT} are allowed."]}
            )
        return super().to_internal_value(data)

    def validate(self, definition: dict[str, Any]) -> dict[str, Any]:
        keys = [step["key"] for step in drafts.steps_and_hooks(definition)]
        if repeated := graph.repeated_keys(keys):
            raise serializers.ValidationError(
                {"steps": [f"Several steps have the same key: {graph.join_words(repeated)}."]}
            )
        needs = {step["key"]: step.get("depends_on", []) for step in definition["steps"]}
        if problems := graph.dependency_problems(needs):
            raise serializers.ValidationError({"steps": problems})
        if problems := step_data.find_path_problems(definition):
            raise serializers.ValidationError({"steps": problems})
        if problems := find_held_keys(definition):
            raise serializers.ValidationError({"limits": problems})
        return super().validate(definition)


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
    """Raise ValidationError if the stored submission would be too large. `size` is in bytes."""
    if size > execution_rows.PAYLOAD_BYTES_LIMIT:
        limit = execution_rows.PAYLOAD_BYTES_LIMIT
        why = f"With the copies for steps and children it has {size} bytes, but may have at most {limit}."
        raise serializers.ValidationError({field: [why]})


class SilentStep(StepRequest):
    """Step without notifications."""

    notify: Any = None


class ChildAction(Definition):
    """Execution that is a job or a step, which has the notifications."""

    type = ChoiceField(["execution"])
    steps = SilentStep(many=True, allow_empty=False)
    notify: Any = None


class SubmissionRequest(TaskRequest):
    """Job that is not a step."""

    def validate(self, job: dict[str, Any]) -> dict[str, Any]:
        job = super().validate(job)
        refuse_oversized_inputs("payload", handed_on(job))
        return job


def handed_on(job: dict[str, Any]) -> int:
    return (
        execution_rows.count_payload_bytes(job["action"], job.get("payload", {}))
        if job["action"]["type"] == "execution"
        else 0
    )


class JobList(serializers.ListSerializer):
    """List of up to 1000 jobs. Errors are at the index of their job."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=SubmissionRequest(), max_length=1000, **options)

    def validate(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        refuse_oversized_inputs(api_settings.NON_FIELD_ERRORS_KEY, sum(map(handed_on, jobs)))
        return jobs


SUBMISSION = one_or_many_schema("Submission", SubmissionRequest, SubmissionRequest(many=True))
