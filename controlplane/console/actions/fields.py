"""Form fields of actions."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.core.durations import parse_duration


def set_choices(form: forms.Form, field: str, choices: Iterable[tuple[str, str]]) -> None:
    cast(forms.ChoiceField, form.fields[field]).choices = list(choices)


def offer_namespaces(form: forms.Form, namespaces: Sequence[str]) -> None:
    """Let the user choose one of these namespaces. Remove the field if there is only one, or none."""
    if len(namespaces) > 1:
        set_choices(form, "namespace", [(name, name) for name in namespaces])
    else:
        del form.fields["namespace"]


class PresetInput(forms.TextInput):
    """Text input with suggestions. With JavaScript (instance.js), a click on a suggestion fills it in."""

    def __init__(self, presets: tuple[str, ...]) -> None:
        super().__init__()
        self.presets = presets

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        known = f"presets-{name}"
        field = super().render(name, value, {**(attrs or {}), "list": known}, renderer)
        each = [(preset,) for preset in self.presets]
        options = format_html_join("", '<option value="{}"></option>', each)
        buttons = format_html_join(" ", '<button type="button" class="button is-small">{}</button>', each)
        return format_html(
            '{}<datalist id="{}">{}</datalist><span class="presets" data-for="{}" hidden>{}</span>',
            field, known, options, name, buttons,
        )  # fmt: skip


class DurationField(forms.CharField):
    """Duration in seconds, written like 5m or 24h. None if it is optional and empty."""

    def __init__(self, *, presets: tuple[str, ...] = (), **options: Any) -> None:
        if presets:
            options["widget"] = PresetInput(presets)
        super().__init__(**options)

    def clean(self, value: object) -> float | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise ValidationError(str(error)) from None
        if seconds is None:
            raise ValidationError("Enter a duration, like 45s, 5m or 24h.")
        return seconds
