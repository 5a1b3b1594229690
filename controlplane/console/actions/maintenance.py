"""What an operator does to the whole control plane, or to a cluster, in words; and the form that asks for how long."""

from dataclasses import dataclass

from django.core.exceptions import ValidationError

from controlplane.console.actions.fields import DurationField
from controlplane.console.actions.servers import NoteForm, OptionalNoteForm


class EnterForm(OptionalNoteForm):
    field_order = ("duration", "note")
    duration = DurationField(
        label="For", required=False, initial="1h", presets=("30m", "1h", "4h", "24h"),
        help_text="30m, 2h, 1d: then it ends by itself. Empty: until somebody ends it.",
    )  # fmt: skip

    def clean_duration(self) -> float | None:
        seconds: float | None = self.cleaned_data["duration"]
        if seconds is not None and seconds <= 0:
            raise ValidationError("That is no time at all.")
        return seconds


@dataclass(frozen=True)
class InstanceAction:
    """What is done to a scope: a cluster, or the whole control plane."""

    name: str
    label: str
    then: str
    permission: str
    form: type[NoteForm] = OptionalNoteForm
    is_grave: bool = False


ENTER = InstanceAction(
    "enter", "Enter maintenance", "Its workers get no new work. What runs finishes, what is submitted waits, and no "
    "job fails because nobody takes it.", "liveness.change_maintenance", EnterForm,
)  # fmt: skip
EXIT = InstanceAction("exit", "Exit maintenance", "Work is given out again.", "liveness.change_maintenance")
RELEASE = InstanceAction(
    "release", "Release the brake", "The silent servers that it holds are disconnected by the next liveness check, and "
    "what they hold moves. One that is cut off runs it a second time, and its reports are refused.",
    "liveness.release_brake", NoteForm, is_grave=True,
)  # fmt: skip
