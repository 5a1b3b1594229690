"""Form of *Retry failed steps…*: the step from which to begin, and the inputs."""

from typing import Any

from django import forms

from controlplane.agent.secrets.values import mask, restore
from controlplane.console.actions.servers import OnceForm
from controlplane.console.actions.trigger_form import describe_problems
from controlplane.console.actions.work_fields import JSONTextField, format_json
from jobs.api.serializers.restarts import RestartRequest
from jobs.models import Execution
from jobs.services.reruns import read_whole_definition

STEPS_OFFERED = 200
"""Steps that a list offers. Of a larger execution, the key of the step is typed."""


class RetryForm(OnceForm):
    """Form for an ended execution. If it is valid, `options` are the arguments of the restart."""

    from_step = forms.CharField(
        required=False, max_length=255, label="From step",
        help_text="This step and its dependents run again, too. Empty: only steps that did not complete, and their "
        "dependents.",
    )  # fmt: skip
    inputs = JSONTextField(
        required=False, help_text="Inputs of the new execution, as JSON. Kept steps do not see them."
    )

    field_order = ("from_step", "inputs", "note")

    def __init__(self, data: Any, *, execution: Execution) -> None:
        super().__init__(data, initial={"inputs": format_json(mask(execution.inputs))})
        self.execution = execution
        self.options: dict[str, Any] = {}
        keys = [step["key"] for step in read_whole_definition(execution)["steps"]]
        if len(keys) <= STEPS_OFFERED:
            self.fields["from_step"].widget = forms.Select(
                choices=[("", "the steps that failed"), *((key, key) for key in keys)]
            )

    def clean(self) -> dict[str, Any]:
        values = self.cleaned_data
        if self.errors:
            return values
        given = {"note": values["note"]}
        if values["from_step"]:
            given["from_step"] = values["from_step"]
        inputs = {} if values["inputs"] is None else restore(values["inputs"], self.execution.inputs)
        if inputs != self.execution.inputs:
            given["inputs"] = inputs
        request = RestartRequest(data=given)
        if request.is_valid():
            self.options = dict(request.validated_data)
        for field, problems in request.errors.items():
            self.add_error(field if field in self.fields else None, list(describe_problems(problems)))
        return values
