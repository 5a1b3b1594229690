"""Forms of API tokens: a new one, and the revocation of one."""

import secrets
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError

from controlplane.console.actions.fields import DurationField, offer_namespaces
from controlplane.console.actions.maintenance import InstanceAction
from controlplane.console.actions.servers import NoteForm, NoteFormField, OptionalNoteForm
from liveness.models import Role

VIEW, ADD, REVOKE = "liveness.view_apitoken", "liveness.add_apitoken", "liveness.change_apitoken"
"""Permissions to see, create and revoke tokens."""
ROLES = {
    Role.WORKER: "worker: registers servers and runs jobs",
    Role.CLIENT: "client: submits jobs, and reads and cancels its own",
    Role.VIEWER: "viewer: reads everything",
    Role.OPERATOR: "operator: reads everything and acts on it",
}
REVOCATION = InstanceAction(
    "revoke", "Revoke", "Calls with this token are refused from now on. This cannot be undone. Servers that registered "
    "with it keep their own tokens unless they are disconnected too.", REVOKE, is_grave=True,
)  # fmt: skip


def new_id() -> UUID:
    """Return an id like those of PostgreSQL's uuid7(), so that lists stay in the order of creation."""
    milliseconds = time.time_ns() // 1_000_000
    return UUID(int=milliseconds << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62))


class TokenForm(OptionalNoteForm):
    """Form of a new token. The namespace field is shown only if there are several `namespaces`.

    The form has the id of its token, so that the same form sent twice creates one token.
    """

    name = NoteFormField(max_length=200, help_text="Purpose of the token, shown beside its first characters.")
    role = forms.ChoiceField(choices=list(ROLES.items()), widget=forms.RadioSelect)
    namespace = forms.ChoiceField(help_text="Only namespace that the token has access to.")
    lifetime = DurationField(
        required=False, presets=("24h", "30d", "365d"), help_text="Like 24h or 30d. Leave it empty if it never expires."
    )

    id = forms.UUIDField(required=False, initial=new_id, widget=forms.HiddenInput)

    field_order = ("name", "role", "namespace", "lifetime", "note")

    def __init__(self, *args: Any, namespaces: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        offer_namespaces(self, namespaces)

    def clean_lifetime(self) -> float | None:
        seconds: float | None = self.cleaned_data["lifetime"]
        if seconds is not None and seconds <= 0:
            raise ValidationError("Enter a duration longer than 0 s, like 30d, or leave it empty.")
        return seconds


class RevokeForm(NoteForm):
    field_order = ("with_servers", "note")
    with_servers = forms.BooleanField(
        required=False, label="Disconnect its servers too", help_text="Their jobs move to other servers."
    )
