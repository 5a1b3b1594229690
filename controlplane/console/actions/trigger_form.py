"""The form of a trigger: fields for its schedule, and plain lines, or JSON, for what it runs and starts."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any
from zoneinfo import available_timezones

import orjson
from django import forms

from controlplane.agent.secret_values import mask
from controlplane.console.actions.fields import DurationField
from controlplane.console.actions.servers import OptionalNoteForm
from controlplane.console.actions.work_fields import (
    ActionField,
    JSONTextField,
    StepsField,
    format_action,
    format_execution,
    format_json,
)
from controlplane.core.durations import format_duration
from jobs.api.serializers.triggers import TriggerRequest, restore_fields
from jobs.models import Trigger
from jobs.states import Missed

CRON, INTERVAL = "cron", "interval"
FIELD_OF = {"interval_seconds": "every", "timeout_seconds": "timeout"}
"""How a field of the API is called here, where it is called otherwise."""
STORED = (
    "name", "cron", "interval_seconds", "timezone", "missed", "action", "payload", "tags", "priority",
    "timeout_seconds", "max_retries", "execution",
)  # fmt: skip


class TriggerForm(OptionalNoteForm):
    """A trigger as the API would take it, and why. `data_of_trigger` is what it says, once it is valid."""

    name = forms.CharField(max_length=255)
    namespace = forms.ChoiceField(
        help_text="Workers of this namespace alone get its evaluations, and what it starts. It stays so."
    )
    schedule = forms.ChoiceField(
        label="Begins",
        choices=[(CRON, "At times of the day (cron)"), (INTERVAL, "At an interval")],
        widget=forms.RadioSelect,
    )
    cron = forms.CharField(
        required=False,
        max_length=255,
        label="Cron expression",
        help_text="Minute, hour, day, month, weekday: 0 2 * * * is each night at two, */5 * * * * every five minutes. "
        "Of six fields the first are seconds.",
    )
    timezone = forms.CharField(
        required=False, label="Time zone", help_text="Of the cron expression.",
        widget=forms.TextInput(attrs={"list": "zones"}),
    )  # fmt: skip
    every = DurationField(required=False, label="Interval", help_text="45s, 5m, 24h; counted from its creation.")
    missed = forms.ChoiceField(
        label="Missed slots", choices=[(word.value, word.meaning) for word in Missed], widget=forms.RadioSelect
    )
    action = ActionField(
        label="Action",
        help_text='A shell command whose output, like {"fire": true, "inputs": {}}, says whether the execution starts; '
        "or any other action, as JSON.",
    )
    payload = JSONTextField(required=False, help_text="Of that job, as JSON. Its trigger and slot come to it anyway.")
    tags = forms.CharField(required=False, help_text="That a worker needs to evaluate it; separated by commas.")
    priority = forms.IntegerField(help_text="Of its evaluations; higher first.")
    timeout = DurationField(help_text="Of each try of an evaluation.")
    max_retries = forms.IntegerField(help_text="Of an evaluation that failed.")
    execution = StepsField(
        label="Steps",
        help_text="A name and a shell command on each line, one after the other; or any other execution, as JSON like "
        '{"name": "x", "steps": [{"key": "a", "action": {"type": "script", "command": "date"}}]}',
        widget=forms.Textarea(
            attrs={**JSONTextField.widget.attrs, "rows": 14, "placeholder": "extract: ./extract.sh\nload: ./load.sh"}
        ),
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    field_order = ("name", "schedule", "cron", "timezone", "every", "missed", "action", "payload", "tags", "priority")

    def __init__(
        self, *args: Any, trigger: Trigger | None = None, namespaces: Sequence[str] = (), **kwargs: Any
    ) -> None:
        """`namespaces`: those of which a new trigger may be; where there are not several, nothing is said of them."""
        super().__init__(*args, **kwargs)
        if len(namespaces) > 1:
            self.fields["namespace"].choices = [(name, name) for name in namespaces]  # type: ignore[attr-defined]
        else:
            del self.fields["namespace"]
        self.trigger = trigger
        self.fields["note"].widget.attrs.pop("autofocus")
        self.data_of_trigger: dict[str, Any] = {}

    def clean(self) -> dict[str, Any]:
        values = self.cleaned_data
        is_cron = values.get("schedule") == CRON
        wanted = "cron" if is_cron else "every"
        if "schedule" in values and wanted not in self.errors and not values.get(wanted):
            self.add_error(wanted, "This field is required.")
        if self.errors:
            return values
        steps = values["execution"]
        data = {
            "name": values["name"],
            "cron": values["cron"] if is_cron else None,
            "interval_seconds": None if is_cron else values["every"],
            "timezone": values["timezone"] or "UTC",
            "missed": values["missed"],
            "action": values["action"],
            "payload": values["payload"],
            "tags": [tag.strip() for tag in values["tags"].split(",") if tag.strip()],
            "priority": values["priority"],
            "timeout_seconds": values["timeout"],
            "max_retries": values["max_retries"],
            "execution": {"name": values["name"], "steps": steps} if isinstance(steps, list) else steps,
        }
        request = TriggerRequest(data=restore_fields(data, self.trigger))
        if request.is_valid():
            self.data_of_trigger = {name: request.validated_data[name] for name in STORED}
        for field, problems in request.errors.items():
            name = FIELD_OF.get(field, field)
            self.add_error(name if name in self.fields else None, list(describe_problems(problems)))
        return values


def describe_problems(problems: Any, at: str = "") -> Iterator[str]:
    """What is wrong, each with where in the JSON it is."""
    if isinstance(problems, dict):
        for key, more in problems.items():
            name = f".{key}" if isinstance(key, str) else f"[{key}]"
            yield from describe_problems(more, at if key == "non_field_errors" else f"{at}{name}".removeprefix("."))
    elif isinstance(problems, list):
        for place, more in enumerate(problems):
            is_leaf = not isinstance(more, dict | list)
            if more:
                yield from describe_problems(more, at if is_leaf else f"{at}[{place}]")
    else:
        yield f"{at}: {problems}" if at else str(problems)


def describe_fields(trigger: Trigger) -> dict[str, Any]:
    """What the form begins with."""
    return {
        "name": trigger.name,
        "schedule": CRON if trigger.interval_seconds is None else INTERVAL,
        "cron": trigger.cron or "",
        "timezone": trigger.timezone,
        "every": "" if trigger.interval_seconds is None else format_duration(trigger.interval_seconds),
        "missed": trigger.missed,
        "action": format_action(mask(trigger.action)),
        "payload": "" if trigger.payload is None else format_json(mask(trigger.payload)),
        "tags": ", ".join(trigger.tags),
        "priority": trigger.priority,
        "timeout": format_duration(trigger.timeout_seconds),
        "max_retries": trigger.max_retries,
        "execution": format_execution(mask(trigger.execution), trigger.name),
        "seen": digest(trigger),
    }


FIRST_FIELDS = {
    "schedule": CRON,
    "timezone": "UTC",
    "missed": Missed.FIRE_ONCE.value,
    "action": "echo '{\"fire\": true}'",
    "priority": 0,
    "timeout": "5m",
    "max_retries": 1,
}
"""What the form of a new trigger begins with."""


def digest(trigger: Trigger) -> str:
    """Of what the form says: whether somebody else has changed it since."""
    return sha256(orjson.dumps([getattr(trigger, name) for name in STORED], option=orjson.OPT_SORT_KEYS)).hexdigest()


def list_time_zones() -> list[str]:
    return sorted(name for name in available_timezones() if "/" in name or name == "UTC")
