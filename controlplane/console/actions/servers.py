"""Operator actions on servers, and the forms that ask for a note."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django import forms
from django.http import HttpRequest

from controlplane.console.actions.fields import DurationField
from controlplane.core.bounds import NOTE_LENGTH
from controlplane.core.problems import Problem
from controlplane.core.rest import clean
from liveness.services import operations
from liveness.services.action_events import format_actor


class NoteFormField(forms.CharField):
    """Note on one line. Line breaks become spaces."""

    default_validators = [clean]

    def to_python(self, value: object) -> str:
        return " ".join((super().to_python(value) or "").splitlines())


class NoteForm(forms.Form):
    note = NoteFormField(
        max_length=NOTE_LENGTH,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
        help_text="Reason for this action. Stored with your name and the time.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not any(name != "note" and not field.widget.is_hidden for name, field in self.fields.items()):
            self.fields["note"].widget.attrs["autofocus"] = True


class OptionalNoteForm(NoteForm):
    """Form of an action that can be undone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["note"].required = False
        self.fields["note"].label = "Note (optional)"


class OnceForm(NoteForm):
    """Form with a key, so that the action runs only once if the form is sent twice."""

    key = forms.CharField(max_length=100, required=False, initial=lambda: str(uuid4()), widget=forms.HiddenInput)


class CordonForm(OptionalNoteForm):
    field_order: tuple[str, ...] = ("duration", "note")
    duration = DurationField(
        label="Duration", required=False, presets=("30m", "1h", "4h", "24h"),
        help_text="Like 30m, 2h or 1d. Then it gets work again. Leave it empty to end it by hand.",
    )  # fmt: skip


class DrainForm(CordonForm):
    field_order = ("deadline", "duration", "note")
    deadline = DurationField(
        required=False,
        presets=("5m", "30m", "2h", "24h"),
        help_text="Like 45s, 5m or 24h. Then the remaining jobs are given back. Leave it empty for the grace period "
        "of each server.",
    )


@dataclass(frozen=True)
class OperatorAction:
    """Action on one object: its texts, its permission and its service."""

    name: str
    label: str
    then: str
    permission: str
    operation: str
    """Key of `OPERATIONS`: the service that performs it."""
    guard: Callable[[Any], None]
    """Function that raises a Problem if the action does not apply now."""
    form: type[NoteForm] = NoteForm
    is_grave: bool = False
    """True if the action cannot be undone. Its button is red and apart from the others."""
    is_removal: bool = False
    """True if the action deletes the object, so that it has no page afterwards."""
    done: str = ""
    """Message after success, like "Cordoned". Empty means the label."""
    requested: str = ""
    """Message for objects that have not ended yet, like "Cancellation requested"."""

    def refusal_reason(self, subject: Any) -> str | None:
        """Return why the action does not apply to this object, or None if it applies."""
        try:
            self.guard(subject)
        except Problem as problem:
            return problem.detail
        return None


SERVER_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "cordon", "Cordon", "The server gets no new work. Its current jobs continue.", "liveness.cordon_server",
            "cordon_server", operations.ensure_may_cordon, CordonForm, done="Cordoned",
        ),
        OperatorAction(
            "uncordon", "Uncordon", "The server gets work again.", "liveness.cordon_server",
            "uncordon_server", operations.ensure_may_uncordon, OptionalNoteForm, done="Uncordoned",
        ),
        OperatorAction(
            "drain", "Drain",
            "The server gets no new work and may finish its current jobs until the deadline. Then it gives back the "
            "rest.",
            "liveness.drain_server", "drain_server", operations.ensure_may_drain, DrainForm,
            done="Drain begun",
        ),
        OperatorAction(
            "undrain", "Stop draining", "The server gets work again. Drain and cordon end.", "liveness.drain_server",
            "undrain_server", operations.ensure_may_undrain, OptionalNoteForm, done="Drain stopped",
        ),
        OperatorAction(
            "disconnect", "Disconnect now",
            "The server counts as lost and is ordered to end. Jobs that have not started move at once. Running "
            "jobs move by its restart strategy. It cannot return: a restarted process registers as a new server.",
            "liveness.disconnect_server", "disconnect_server", operations.ensure_may_disconnect,
            is_grave=True,
        ),
    )
}  # fmt: skip


def list_permitted_actions(
    request: HttpRequest, actions: dict[str, OperatorAction], subject: Any = None
) -> list[OperatorAction]:
    """Return the actions that the user may perform. With a subject, only those that apply to it now."""
    permitted = [action for action in actions.values() if request.user.has_perm(action.permission)]
    return permitted if subject is None else [action for action in permitted if action.refusal_reason(subject) is None]


def request_actor(request: HttpRequest) -> str:
    return format_actor(request.user.get_username())
