"""Operator actions on holds, and the form that creates one."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from controlplane.console.actions.fields import DurationField, set_choices
from controlplane.console.actions.maintenance import InstanceAction
from controlplane.console.actions.servers import OnceForm, OptionalNoteForm
from controlplane.core.ids import parse_uuid
from jobs.choices import HoldMode, HoldOf
from jobs.models import Execution, Trigger
from liveness.selectors.namespaces import rows_within

PERMISSION = "liveness.change_maintenance"
MODELS: dict[str, Any] = {HoldOf.EXECUTION.value: Execution, HoldOf.TRIGGER.value: Trigger}

CREATE = InstanceAction(
    "create_hold", "Hold", "What the hold covers does not start until it is released. Running jobs finish. Submitted "
    "jobs wait or are refused.", PERMISSION,
)  # fmt: skip
RELEASE = InstanceAction(
    "release_hold",
    "Release",
    "What it held starts again, in the order in which it would have been claimed.",
    PERMISSION,
)
KILL = InstanceAction(
    "kill", "Kill", "The hold begins first, so nothing of this work starts any more. Then waiting jobs are cancelled. "
    "Running jobs end when their worker confirms.", PERMISSION, is_grave=True,
)  # fmt: skip
KILLABLE = [kind for kind in HoldOf if kind != HoldOf.TRIGGER]


class HoldForm(OptionalNoteForm, OnceForm):
    """Form of a new hold. `reached` are the namespaces of the user (None: all).

    Only a user who reaches all namespaces may hold work of all of them.
    """

    field_order = ("kind", "value", "namespace", "mode", "duration", "note")
    kind = forms.ChoiceField(label="Hold", choices=[(kind.value, kind.value) for kind in HoldOf])
    value = forms.CharField(label="Name or id", max_length=200)
    namespace = forms.ChoiceField(label="Of namespace", required=False)
    mode = forms.ChoiceField(
        label="New submissions", choices=[("pause", "wait"), ("refuse", "are refused with the note")]
    )
    duration = DurationField(
        label="Duration", required=False, presets=("30m", "1h", "4h", "24h"),
        help_text="Like 30m, 2h or 1d. Leave it empty to release it by hand.",
    )  # fmt: skip

    def __init__(self, *args: Any, namespaces: Iterable[str], reached: frozenset[str] | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reached = reached
        choices = [(name, name or "all namespaces") for name in namespaces]
        set_choices(self, "namespace", choices)
        self.fields["namespace"].required = reached is not None
        if len(choices) == 1:
            self.fields["namespace"].widget = forms.HiddenInput()
            self.fields["namespace"].initial = choices[0][0]

    def clean_duration(self) -> float | None:
        seconds: float | None = self.cleaned_data["duration"]
        if seconds is not None and seconds <= 0:
            raise ValidationError("Enter a duration longer than 0 s, like 30m, or leave it empty.")
        return seconds

    def clean_mode(self) -> HoldMode:
        return HoldMode(self.cleaned_data["mode"])

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().clean() or self.cleaned_data
        kind, value = fields.get("kind"), fields.get("value", "")
        if kind in MODELS:
            id = parse_uuid(value)
            if id is None or not rows_within(self.reached, MODELS[kind].objects.filter(pk=id)).exists():
                self.add_error("value", f"No {kind} has the id {value}.")
            else:
                fields["value"] = str(id)
        if kind == HoldOf.NAMESPACE and self.reached is not None and value not in self.reached:
            self.add_error("value", f"You have no access to the namespace {value}.")
        return fields


class KillForm(HoldForm):
    """Form of a hold and the cancellation of what it covers. It is shown again to confirm the preview."""

    kind = forms.ChoiceField(label="Kill", choices=[(kind.value, kind.value) for kind in KILLABLE])

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["mode"].initial = HoldMode.REFUSE.value
        self.fields["note"].required = True
        self.fields["note"].label = "Note"

    def as_confirmation(self) -> "KillForm":
        """Return this form with all fields hidden, for the page that shows the effect."""
        for field in self.fields.values():
            field.widget = forms.HiddenInput()
        return self
