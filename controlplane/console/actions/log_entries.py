"""What is done from the pages stands in the admin's log as well, beside the event that the service writes."""

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model


def write_log_entry(user: Any, row: Any, label: str, note: str) -> None:
    """The entry of one thing, by the key of a user."""
    LogEntry.objects.log_actions(user, [row], CHANGE, f"{label}: {note}".rstrip(": "), single_object=True)


def log_item(sender: object, item: Any, row: Any, **_: object) -> None:
    """The entry of what a batch has done, by the user who began it; none where there is no such user any more."""
    if row is None or item.user_key is None:
        return
    if user := get_user_model()._default_manager.filter(pk=item.user_key).values_list("pk", flat=True).first():
        write_log_entry(user, row, item.label, item.note)
