"""What an operator may do to a server, in words and as a service; and the forms that ask him why."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django import forms
from django.http import HttpRequest

from controlplane.console.actions.fields import DurationField
from controlplane.core.problems import Problem
from controlplane.core.rest import NOTE_LENGTH, clean
from liveness.services import operations
from liveness.services.action_events import format_actor


class NoteField(forms.CharField):
    """A note is one line, also of who writes it on several."""

    default_validators = [clean]

    def to_python(self, value: object) -> str:
        return " ".join((super().to_python(value) or "").splitlines())


class NoteForm(forms.Form):
    note = NoteField(
        max_length=NOTE_LENGTH,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60, "autofocus": True}),
        help_text="Why you do this. Kept with your name and the time.",
    )


class OptionalNoteForm(NoteForm):
    """Of what can be undone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["note"].required = False
        self.fields["note"].label = "Note (not required)"


class OnceForm(NoteForm):
    """Of what would be done again by a form that is sent twice."""

    key = forms.CharField(max_length=100, required=False, initial=lambda: str(uuid4()), widget=forms.HiddenInput)


class CordonForm(OptionalNoteForm):
    field_order: tuple[str, ...] = ("duration", "note")
    duration = DurationField(
        label="For", required=False, presets=("30m", "1h", "4h", "24h"),
        help_text="30m, 2h, 1d: then it gets work again by itself. Empty: until somebody ends it.",
    )  # fmt: skip


class DrainForm(CordonForm):
    field_order = ("deadline", "duration", "note")
    deadline = DurationField(
        required=False,
        presets=("5m", "30m", "2h", "24h"),
        help_text="45s, 5m, 24h; the grace period of each unless given. Then it gives back what it still holds.",
    )


@dataclass(frozen=True)
class OperatorAction:
    """What an operator may do to one thing: in a word, in a sentence, and as a service."""

    name: str
    label: str
    then: str
    permission: str
    operation: str
    """Of `OPERATIONS`: the service that does it."""
    guard: Callable[[Any], None]
    """Raises the Problem that says why it does not apply now."""
    form: type[NoteForm] = NoteForm
    is_grave: bool = False
    """It ends something that cannot be had back: it stands apart, and is red."""
    is_removal: bool = False
    """Afterwards the thing has no page any more."""

    def refusal_reason(self, subject: Any) -> str | None:
        """Why nothing would happen to it; None: it would."""
        try:
            self.guard(subject)
        except Problem as problem:
            return problem.detail
        return None


SERVER_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "cordon", "Cordon", "It gets no new work. What it holds goes on.", "liveness.cordon_server",
            "cordon_server", operations.ensure_may_cordon, CordonForm,
        ),
        OperatorAction(
            "uncordon", "Uncordon", "It gets work again.", "liveness.cordon_server",
            "uncordon_server", operations.ensure_may_uncordon, OptionalNoteForm,
        ),
        OperatorAction(
            "drain", "Drain",
            "It gets no new work, and until the deadline to finish what it holds. Then it gives back the rest.",
            "liveness.drain_server", "drain_server", operations.ensure_may_drain, DrainForm,
        ),
        OperatorAction(
            "undrain", "Stop draining", "It gets work again: drain and cordon are lifted.", "liveness.drain_server",
            "undrain_server", operations.ensure_may_undrain, OptionalNoteForm,
        ),
        OperatorAction(
            "disconnect", "Disconnect now",
            "It counts as lost and is told to end. Jobs that have not started move at once, running ones by its "
            "restart strategy. It never comes back: a restart is another server.",
            "liveness.disconnect_server", "disconnect_server", operations.ensure_may_disconnect,
            is_grave=True,
        ),
    )
}  # fmt: skip


def list_permitted_actions(
    request: HttpRequest, actions: dict[str, OperatorAction], subject: Any = None
) -> list[OperatorAction]:
    """The actions that this reader may take; of one thing, those that apply to it now."""
    permitted = [action for action in actions.values() if request.user.has_perm(action.permission)]
    return permitted if subject is None else [action for action in permitted if action.refusal_reason(subject) is None]


def request_actor(request: HttpRequest) -> str:
    return format_actor(request.user.get_username())
