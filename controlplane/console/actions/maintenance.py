"""Operator actions on the whole control plane or on a cluster."""

from dataclasses import dataclass

from django.core.exceptions import ValidationError

from controlplane.console.actions.fields import DurationField
from controlplane.console.actions.servers import NoteForm, OptionalNoteForm


class EnterForm(OptionalNoteForm):
    field_order = ("duration", "note")
    duration = DurationField(
        label="Duration", required=False, initial="1h", presets=("30m", "1h", "4h", "24h"),
        help_text="Like 30m, 2h or 1d. Leave it empty to end it by hand.",
    )  # fmt: skip

    def clean_duration(self) -> float | None:
        seconds: float | None = self.cleaned_data["duration"]
        if seconds is not None and seconds <= 0:
            raise ValidationError("Enter a duration longer than 0 s, like 30m, or leave it empty.")
        return seconds


@dataclass(frozen=True)
class InstanceAction:
    """Action on a cluster or on the whole control plane."""

    name: str
    label: str
    then: str
    permission: str
    form: type[NoteForm] = OptionalNoteForm
    is_grave: bool = False


ENTER = InstanceAction(
    "enter", "Enter maintenance", "Workers get no new work. Running jobs finish, submitted jobs wait, and no job fails "
    "for lack of a worker.", "liveness.change_maintenance", EnterForm,
)  # fmt: skip
EXIT = InstanceAction("exit", "Exit maintenance", "Workers get work again.", "liveness.change_maintenance")
RELEASE = InstanceAction(
    "release", "Release the brake", "The next liveness check disconnects the silent servers that the brake holds, and "
    "their jobs move. If a server is only cut off, its jobs run twice and its own reports are refused.",
    "liveness.release_brake", NoteForm, is_grave=True,
)  # fmt: skip
