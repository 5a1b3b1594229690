"""Operator actions on rules of limits, and the form that sets one."""

from collections.abc import Iterable
from typing import Any

from django import forms

from controlplane.console.actions.holds import PERMISSION
from controlplane.console.actions.maintenance import InstanceAction
from controlplane.console.actions.servers import OptionalNoteForm
from jobs.api.serializers.limits import SLOTS_LIMIT, LimitRequest, find_pattern_problem

SET = InstanceAction(
    "set_limit", "Set limit", "The rule acts at once. Running jobs finish, and jobs over the limit wait for a slot.",
    PERMISSION,
)  # fmt: skip
DELETE = InstanceAction(
    "delete_limit", "Delete limit", "Jobs that wait only for this limit may start at once.", PERMISSION
)


class LimitForm(OptionalNoteForm):
    """Form of a rule. `namespaces` are those that the user may limit."""

    field_order = ("pattern", "namespace", "running", "starts", "per_seconds", "note")
    pattern = forms.CharField(
        label="Key or pattern", max_length=202,
        help_text="A key like stripe, or a pattern like customer:* for each key that begins with customer:",
    )  # fmt: skip
    namespace = forms.ChoiceField(label="Of namespace", help_text="A rule of default counts for all namespaces.")
    running = forms.IntegerField(
        label="Running at once",
        required=False,
        min_value=0,
        max_value=SLOTS_LIMIT,
        help_text="Over all workers. 0: none starts.",
    )
    starts = forms.IntegerField(label="Starts", required=False, min_value=1, max_value=SLOTS_LIMIT)
    per_seconds = forms.FloatField(
        label="In seconds", required=False, min_value=0.001, help_text="Like 10 starts in 60 seconds."
    )

    def __init__(self, *args: Any, namespaces: Iterable[str], **options: Any) -> None:
        super().__init__(*args, **options)
        choices = [(name, name) for name in namespaces]
        self.fields["namespace"].choices = choices  # type: ignore[attr-defined]
        if len(choices) == 1:
            self.fields["namespace"].widget = forms.HiddenInput()
            self.fields["namespace"].initial = choices[0][0]

    def clean_pattern(self) -> str:
        pattern: str = self.cleaned_data["pattern"]
        if problem := find_pattern_problem(pattern):
            raise forms.ValidationError(problem)
        return pattern

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            request = LimitRequest(data={name: fields[name] for name in ("running", "starts", "per_seconds")})
            if not request.is_valid():
                for name, problems in request.errors.items():
                    self.add_error(name if name in self.fields else None, [str(one) for one in problems])
        return fields
