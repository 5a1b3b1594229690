"""What an operator does about alerts: mute a rule, unmute it, try the channels."""

from dataclasses import dataclass

from django.core.exceptions import ValidationError

from controlplane.console.actions.fields import DurationField
from controlplane.console.actions.servers import OptionalNoteForm

PERMISSION = "liveness.change_maintenance"
"""Of what holds for the whole instance, and can be undone."""


@dataclass(frozen=True)
class AlertAction:
    name: str
    label: str
    then: str
    is_grave: bool = False


MUTE = AlertAction(
    "mute", "Mute", "Nobody is told of what it finds until then. What is still there at the end is told then; that an "
    "incident is over is told all the same, if its beginning was.",
)  # fmt: skip
UNMUTE = AlertAction(
    "unmute", "Unmute", "What it finds is told again, and what it has found meanwhile and is still there."
)
TEST = AlertAction(
    "test", "Send a test", "A test message for each channel is written to the outbox and goes out with the next check. "
    "What came of it stands on the page of alerts.",
)  # fmt: skip


class MuteForm(OptionalNoteForm):
    field_order = ("duration", "note")
    duration = DurationField(
        label="For", initial="1h", presets=("30m", "1h", "4h", "24h", "7d"), help_text="30m, 2h, 1d."
    )

    def clean_duration(self) -> float:
        seconds: float = self.cleaned_data["duration"]
        if seconds <= 0:
            raise ValidationError("That is no time at all.")
        return seconds
