"""Operator actions on rules of limits, and the form that sets one."""

from collections.abc import Iterable
from typing import Any, cast

from django import forms
from rest_framework.exceptions import ValidationError

from controlplane.console.actions.holds import PERMISSION
from controlplane.console.actions.maintenance import InstanceAction
from controlplane.console.actions.servers import OptionalNoteForm
from jobs.api.serializers.limits import (
    SLOTS_LIMIT,
    WEIGHT_LIMIT,
    LimitRequest,
    find_pattern_problem,
    refuse_misplaced,
)
from jobs.services.limit_rules import FIELDS

SET = InstanceAction(
    "set_limit", "Set limit", "The rule acts at once. Running jobs finish, and jobs over the limit wait for a slot.",
    PERMISSION,
)  # fmt: skip
DELETE = InstanceAction(
    "delete_limit", "Delete limit", "Jobs that wait only for this limit may start at once.", PERMISSION
)


class YesNoOrNotSet(forms.NullBooleanSelect):
    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.choices = [("unknown", "Not set"), ("true", "Yes"), ("false", "No")]


class LimitForm(OptionalNoteForm):
    """Form of a rule. `namespaces` are those that the user may limit."""

    field_order = ("pattern", "namespace", *FIELDS, "note")
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
    fair = forms.NullBooleanField(label="Keys take turns", required=False, widget=YesNoOrNotSet)
    weight = forms.IntegerField(
        label="Weight", required=False, min_value=1, max_value=WEIGHT_LIMIT,
        help_text="Starts of a key for each start of a key of weight 1.",
    )  # fmt: skip

    max_waiting = forms.IntegerField(
        label="Waiting jobs", required=False, min_value=0, max_value=SLOTS_LIMIT,
        help_text="Only for namespace:NAME. Submissions above it are refused.",
    )  # fmt: skip
    submissions_per_minute = forms.IntegerField(
        label="Submissions a minute", required=False, min_value=1, max_value=SLOTS_LIMIT,
        help_text="Only for namespace:NAME.",
    )  # fmt: skip

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
            request = LimitRequest(data={name: fields[name] for name in FIELDS})
            try:
                request.is_valid(raise_exception=True)
                refuse_misplaced(fields["namespace"], fields["pattern"], fields)
            except ValidationError as error:
                for name, problems in cast(dict[str, Any], error.detail).items():
                    self.add_error(name if name in self.fields else None, [str(one) for one in problems])
        return fields
