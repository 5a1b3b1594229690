"""Forms on the page of an incident."""

from collections.abc import Iterable
from typing import Any

from django import forms

from controlplane.console.actions.fields import set_choices
from controlplane.console.actions.servers import NoteFormField
from controlplane.core.bounds import NOTE_LENGTH

HANDLE = "jobs.handle_incident"
"""Permission to acknowledge incidents, assign them and comment on them."""


class OwnerForm(forms.Form):
    owner = forms.ChoiceField(required=False)
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any, *, names: Iterable[str], owner: str) -> None:
        """Build the form for an incident of this owner. `names` are the people who may own incidents."""
        super().__init__(data, initial={"owner": owner, "seen": owner})
        people = sorted({*names, owner} - {""})
        set_choices(self, "owner", [("", "No owner"), *((name, name) for name in people)])


class CommentForm(forms.Form):
    comment = NoteFormField(max_length=NOTE_LENGTH, widget=forms.Textarea(attrs={"rows": 2, "cols": 60}))
