"""Operator actions on alerts: mute a rule, unmute it, test the channels."""

from dataclasses import dataclass

from django import forms
from django.core.exceptions import ValidationError

from controlplane.console.actions.fields import DurationField
from controlplane.console.actions.servers import OptionalNoteForm

PERMISSION = "liveness.change_maintenance"
"""Permission for actions on the whole instance that can be undone."""


@dataclass(frozen=True)
class AlertAction:
    name: str
    label: str
    then: str
    is_grave: bool = False


MUTE = AlertAction(
    "mute", "Mute", "Until then, this rule sends no messages about new incidents. Incidents that are still open at "
    "that time are announced then. The end of an incident is announced if its beginning was announced.",
)  # fmt: skip
UNMUTE = AlertAction(
    "unmute",
    "Unmute",
    "Messages are sent again. Incidents that began while it was muted and are still open are announced.",
)
TEST = AlertAction(
    "test", "Send a test", "A test message for each channel is added to the outbox and sent at the next check. "
    "The alerts page shows the result.",
)  # fmt: skip


SEND_AGAIN = AlertAction(
    "send_again", "Send again", "The message is sent once more, with the same id, with the next due messages."
)


ADD_CHANNEL = AlertAction(
    "add", "Add channel", "Messages about incidents that begin from now on are also sent there. The address is stored "
    "in the database.",
)  # fmt: skip
REMOVE_CHANNEL = AlertAction(
    "remove", "Remove", "No more messages are sent over this channel. Its waiting messages are given up.",
    is_grave=True,
)  # fmt: skip
ADD_PERMISSION, REMOVE_PERMISSION = "jobs.add_alertchannel", "jobs.delete_alertchannel"


class ChannelForm(OptionalNoteForm):
    field_order = ("kind", "address", "note")
    kind = forms.ChoiceField(
        choices=[("webhook", "webhook (signed)"), ("email", "e-mail"), ("apprise", "chat (Apprise)")]
    )
    address = forms.CharField(
        max_length=2000, help_text="Like https://example.org/hook, ops@example.org or slack://TokenA/TokenB/TokenC."
    )


class MuteForm(OptionalNoteForm):
    field_order = ("duration", "note")
    duration = DurationField(
        label="Duration", initial="1h", presets=("30m", "1h", "4h", "24h", "7d"), help_text="30m, 2h, 1d."
    )

    def clean_duration(self) -> float:
        seconds: float = self.cleaned_data["duration"]
        if seconds <= 0:
            raise ValidationError("Enter a duration longer than 0 s, like 30m.")
        return seconds
