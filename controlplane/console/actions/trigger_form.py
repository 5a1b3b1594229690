"""Form of a trigger: fields for the schedule, and plain lines or JSON for its evaluation job and its execution."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from zoneinfo import available_timezones

import orjson
from django import forms

from controlplane.agent.secrets.values import mask
from controlplane.console.actions.fields import DurationField, offer_namespaces
from controlplane.console.actions.servers import OptionalNoteForm
from controlplane.console.actions.work_fields import (
    ActionTextField,
    JSONTextField,
    StepsField,
    format_action,
    format_execution,
    format_json,
)
from controlplane.core.durations import format_duration
from controlplane.core.json_bodies import write_json
from jobs.api.serializers.triggers import STORED, TriggerRequest, find_problems, restore_fields
from jobs.choices import Missed, Overlap
from jobs.models import Trigger

CRON, INTERVAL, SIGNAL = "cron", "interval", "signal"
FIELD_OF_KIND = {CRON: "cron", INTERVAL: "every", SIGNAL: "on_signal"}
FIELD_OF = {"interval_seconds": "every", "timeout_seconds": "timeout", "jitter_seconds": "jitter"}
"""Name of an API field in this form, if it differs."""


class TriggerForm(OptionalNoteForm):
    """Trigger form with the checks of the API. If the form is valid, `data_of_trigger` is its result."""

    name = forms.CharField(max_length=255)
    namespace = forms.ChoiceField(
        help_text="Only workers of this namespace run its evaluations and executions. It cannot be changed later."
    )
    schedule = forms.ChoiceField(
        label="Kind of schedule",
        choices=[(CRON, "At fixed times (cron)"), (INTERVAL, "At an interval"), (SIGNAL, "At a signal")],
        widget=forms.RadioSelect,
    )
    cron = forms.CharField(
        required=False,
        max_length=255,
        label="Cron expression",
        help_text="Minute, hour, day, month, weekday. 0 2 * * * means every day at 02:00, */5 * * * * every five "
        "minutes. With six fields, the first one sets the seconds.",
    )
    timezone = forms.CharField(
        required=False, label="Time zone", help_text="Time zone of the cron expression.",
        widget=forms.TextInput(attrs={"list": "zones"}),
    )  # fmt: skip
    every = DurationField(
        required=False, label="Interval", help_text="Like 45s, 5m or 24h, counted from the trigger's creation."
    )
    on_signal = forms.CharField(
        required=False,
        label="Signal",
        help_text="Name of a signal, like paid:42, or paid:* for all with this prefix. ended:NAME is sent when an "
        "execution of this name ends.",
    )
    start_at = forms.CharField(
        required=False, label="Start", help_text="No slot is before this time, like 2030-01-31T08:00:00Z."
    )
    end_at = forms.CharField(required=False, label="End", help_text="No slot is after this time.")
    jitter = DurationField(
        required=False,
        help_text="Start each slot late by a part of this time. Each trigger has its own part, which stays the same.",
    )
    missed = forms.ChoiceField(
        label="Missed slots", choices=[(word.value, word.meaning) for word in Missed], widget=forms.RadioSelect
    )
    overlap = forms.ChoiceField(
        label="While an earlier execution runs",
        choices=[(word.value, word.meaning) for word in Overlap],
        widget=forms.RadioSelect,
    )
    pause_after_failures = forms.IntegerField(
        required=False,
        min_value=1,
        label="Pause after failures",
        help_text="Pause the trigger after so many FAILED executions in a row. Empty: never.",
    )
    action = ActionTextField(
        required=False,
        label="Action",
        help_text="A shell command, or any action as JSON. Its output, like "
        '{"fire": true, "inputs": {}}, decides whether the execution starts. Without an action it starts at once.',
    )
    payload = JSONTextField(
        required=False, help_text="Payload of the evaluation job, as JSON. Trigger and slot are always added."
    )
    tags = forms.CharField(
        required=False, help_text="Tags that a worker needs to run the evaluation, separated by commas."
    )
    priority = forms.IntegerField(help_text="Priority of evaluations. Higher runs first.")
    timeout = DurationField(help_text="Time limit of each evaluation attempt.")
    max_retries = forms.IntegerField(help_text="Retries of a failed evaluation.")
    execution = StepsField(
        label="Steps",
        help_text="One step on each line: a name and a shell command. They run in this order. "
        "Or an execution as JSON, like "
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
        super().__init__(*args, **kwargs)
        offer_namespaces(self, namespaces)
        self.trigger = trigger
        self.data_of_trigger: dict[str, Any] = {}

    def clean(self) -> dict[str, Any]:
        values = self.cleaned_data
        kind = values.get("schedule")
        wanted = FIELD_OF_KIND.get(str(kind), "")
        if "schedule" in values and wanted not in self.errors and not values.get(wanted):
            self.add_error(wanted, "This field is required.")
        if self.errors:
            return values
        steps = values["execution"]
        data = {
            "name": values["name"],
            "cron": values["cron"] if kind == CRON else None,
            "interval_seconds": values["every"] if kind == INTERVAL else None,
            "on_signal": values["on_signal"] if kind == SIGNAL else None,
            "timezone": values["timezone"] or "UTC",
            "start_at": values["start_at"] or None,
            "end_at": values["end_at"] or None,
            "jitter_seconds": values["jitter"] or 0,
            "missed": values["missed"],
            "overlap": values["overlap"],
            "pause_after_failures": values["pause_after_failures"],
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
            given = request.validated_data  # the form has no field for some of them, which keep their value
            self.data_of_trigger = {name: given[name] for name in STORED if name in given}
        for field, problems in request.errors.items():
            name = FIELD_OF.get(field, field)
            self.add_error(name if name in self.fields else None, list(describe_problems(problems)))
        return values


def describe_problems(problems: Any, at: str = "") -> Iterator[str]:
    """Yield each problem with its place in the JSON."""
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


def list_problems(trigger: Trigger) -> list[str]:
    """Return the errors that the form would show for a stored trigger today, each with the name of its field."""
    return [
        f"{FIELD_OF.get(field, field)}: {problem}"
        for field, problems in find_problems(trigger).items()
        for problem in describe_problems(problems)
    ]


def describe_fields(trigger: Trigger) -> dict[str, Any]:
    """Return the initial values of the form for a trigger."""
    return {
        "name": trigger.name,
        "schedule": SIGNAL if trigger.on_signal else CRON if trigger.interval_seconds is None else INTERVAL,
        "cron": trigger.cron or "",
        "timezone": trigger.timezone,
        "every": "" if trigger.interval_seconds is None else format_duration(trigger.interval_seconds),
        "on_signal": trigger.on_signal or "",
        "start_at": format_time(trigger.start_at),
        "end_at": format_time(trigger.end_at),
        "jitter": format_duration(trigger.jitter_seconds) if trigger.jitter_seconds else "",
        "missed": trigger.missed,
        "overlap": trigger.overlap,
        "pause_after_failures": trigger.pause_after_failures,
        "action": "" if trigger.action is None else format_action(mask(trigger.action)),
        "payload": "" if trigger.payload is None else format_json(mask(trigger.payload)),
        "tags": ", ".join(trigger.tags),
        "priority": trigger.priority,
        "timeout": format_duration(trigger.timeout_seconds),
        "max_retries": trigger.max_retries,
        "execution": format_execution(mask(trigger.execution), trigger.name),
        "seen": digest(trigger),
    }


def format_time(at: datetime | None) -> str:
    return "" if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


FIRST_FIELDS = {
    "schedule": CRON,
    "timezone": "UTC",
    "missed": Missed.FIRE_ONCE.value,
    "overlap": Overlap.ALLOW.value,
    "action": "echo '{\"fire\": true}'",
    "priority": 0,
    "timeout": "5m",
    "max_retries": 1,
}
"""Initial values of the form for a new trigger."""


def digest(trigger: Trigger) -> str:
    """Return a hash of the fields in the form, to detect changes by another user."""
    return sha256(write_json([getattr(trigger, name) for name in STORED], orjson.OPT_SORT_KEYS)).hexdigest()


def list_time_zones() -> list[str]:
    return sorted(name for name in available_timezones() if "/" in name or name == "UTC")
