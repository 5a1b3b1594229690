"""Operator actions on backfills, and the form that begins one."""

from typing import Any

from django import forms

from controlplane.console.actions.maintenance import InstanceAction
from controlplane.console.actions.servers import OnceForm, OptionalNoteForm
from jobs.api.serializers.backfills import BackfillRequest

PERMISSION = "jobs.evaluate_trigger"
BEGIN = InstanceAction(
    "begin_backfill", "Backfill", "The trigger runs for each past slot of the period that has not fired, in order. "
    "This also works while the trigger is paused. The next slot does not change.", PERMISSION,
)  # fmt: skip
STOP = InstanceAction(
    "stop_backfill", "Stop", "No further slot starts. Running executions continue.", PERMISSION,
)  # fmt: skip


class BackfillForm(OptionalNoteForm, OnceForm):
    """Form of a new backfill with the checks of the API. If it is valid, `period` has the times and the number."""

    field_order = ("from", "to", "max_running", "note")
    to = forms.CharField(help_text="First time after the period, like 2030-02-01T00:00:00Z. Not in the future.")
    max_running = forms.IntegerField(
        initial=1, min_value=1, max_value=100, label="At once", help_text="Largest number of executions at once."
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["from"] = forms.CharField(help_text="First time of the period, like 2030-01-01T00:00:00Z.")
        self.order_fields(self.field_order)
        self.period: dict[str, Any] = {}

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return fields
        request = BackfillRequest(data={name: fields[name] for name in ("from", "to", "max_running")})
        if request.is_valid():
            self.period = dict(request.validated_data)
        for name, problems in request.errors.items():
            self.add_error(name, list(map(str, problems)))
        return fields
