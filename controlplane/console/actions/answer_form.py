"""Form that answers an approval: its choices, a field for each value that it asks for, and a note."""

from typing import Any

from django import forms

from controlplane.console.actions.servers import OptionalNoteForm
from jobs.answer_fields import find_value_problems

PERMISSION = "jobs.answer_execution"


class AnswerForm(OptionalNoteForm):
    """Form built from what a step waits for (`waiting_for`)."""

    def __init__(self, data: Any, wait: dict[str, Any]) -> None:
        super().__init__(data)
        self.schema = wait["fields"] or {}
        required = self.schema.get("required", [])
        note = self.fields.pop("note")
        note.widget.attrs.pop("autofocus", None)
        self.fields["choice"] = forms.ChoiceField(
            choices=[(choice, choice) for choice in wait["choices"]], widget=forms.RadioSelect
        )
        for name, field in self.schema.get("properties", {}).items():
            self.fields[name] = build_field(name, field, is_required=name in required)
        self.fields["note"] = note

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            for name, problem in find_value_problems(self.schema, self.values).items():
                self.add_error(name, problem)
        return self.cleaned_data

    @property
    def values(self) -> dict[str, Any]:
        """Return the values of the answer. An optional field that is empty has none."""
        given = {name: self.cleaned_data.get(name) for name in self.schema.get("properties", {})}
        return {name: value for name, value in given.items() if value is not None and value != ""}


def build_field(name: str, field: dict[str, Any], *, is_required: bool) -> forms.Field:
    """Return the form field of one property of the schema."""
    options: dict[str, Any] = {
        "label": field.get("title") or name,
        "help_text": field.get("description", ""),
        "required": is_required,
        "initial": field.get("default"),
    }
    if field["type"] == "boolean":
        return forms.BooleanField(**{**options, "required": False})
    if "enum" in field:
        by_text = {str(value): value for value in field["enum"]}
        choices = [*([] if is_required else [("", "–")]), *((text, text) for text in by_text)]
        return forms.TypedChoiceField(choices=choices, coerce=by_text.__getitem__, empty_value=None, **options)
    if field["type"] == "string":
        return forms.CharField(**options)
    return (forms.IntegerField if field["type"] == "integer" else forms.FloatField)(**options)
