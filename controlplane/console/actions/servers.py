"""What an operator may do to a server, in words and as a service; and the forms that ask him why."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django import forms
from django.http import HttpRequest

from controlplane.core.durations import seconds
from controlplane.core.problems import Problem
from controlplane.core.rest import clean
from liveness.services import operations


class NoteField(forms.CharField):
    """A note is one line, also of who writes it on several."""

    default_validators = [clean]

    def to_python(self, value: Any) -> str:
        return " ".join((super().to_python(value) or "").splitlines())


class NoteForm(forms.Form):
    note = NoteField(
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60, "autofocus": True}),
        help_text="Why. Kept with who and when.",
    )


class OnceForm(NoteForm):
    """Of what would be done again by a form that is sent twice."""

    key = forms.CharField(max_length=100, required=False, initial=lambda: str(uuid4()), widget=forms.HiddenInput)


class DrainForm(NoteForm):
    deadline = forms.CharField(required=False, help_text="45s, 5m, 24h; the grace period of each unless given.")

    def clean_deadline(self) -> float | None:
        try:
            return seconds(self.cleaned_data["deadline"] or None)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


@dataclass(frozen=True)
class Action:
    """What an operator may do to one thing: in a word, in a sentence, and as a service."""

    name: str
    label: str
    then: str
    permission: str
    act: Callable[..., Any]
    may: Callable[[Any], None]
    """Raises the Problem that says why it does not apply now."""
    form: type[NoteForm] = NoteForm

    def refusal(self, it: Any) -> str | None:
        """Why nothing would happen to it; None: it would."""
        try:
            self.may(it)
        except Problem as problem:
            return problem.detail
        return None


SERVER_ACTIONS = {
    action.name: action
    for action in (
        Action(
            "cordon", "Cordon", "It gets no new work. What it holds goes on.", "liveness.cordon_server",
            operations.cordon, operations.may_cordon,
        ),
        Action(
            "uncordon", "Uncordon", "It gets work again.", "liveness.cordon_server",
            operations.uncordon, operations.may_uncordon,
        ),
        Action(
            "drain", "Drain",
            "It gets no new work, and until the deadline to finish what it holds. Then it gives back the rest.",
            "liveness.drain_server", operations.drain, operations.may_drain, DrainForm,
        ),
        Action(
            "undrain", "Stop draining", "It gets work again: drain and cordon are lifted.", "liveness.drain_server",
            operations.undrain, operations.may_undrain,
        ),
        Action(
            "disconnect", "Disconnect now",
            "It counts as lost and is told to end. Jobs that have not begun move at once, running ones by its restart "
            "strategy. It never comes back: a restart is another server.",
            "liveness.disconnect_server", operations.disconnect, operations.may_disconnect,
        ),
    )
}  # fmt: skip


def offered(request: HttpRequest, actions: dict[str, Action], it: Any = None) -> list[Action]:
    """The actions that this reader may take; of one thing, those that apply to it now."""
    mine = [action for action in actions.values() if request.user.has_perm(action.permission)]
    return mine if it is None else [action for action in mine if action.refusal(it) is None]


def actor(request: HttpRequest) -> str:
    return operations.actor(request.user.get_username())
