"""Entries in the Django admin log for actions on the pages. The services also write their own events."""

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model


def write_log_entry(user: Any, row: Any, label: str, note: str) -> None:
    """Write an entry about one object. `user` is the primary key of the user."""
    LogEntry.objects.log_actions(user, [row], CHANGE, f"{label}: {note}".rstrip(": "), single_object=True)


def log_item(sender: object, item: Any, row: Any, **_: object) -> None:
    """Write an entry for one processed item of a batch, unless the user of the batch was deleted."""
    if row is None or item.user_key is None:
        return
    if user := get_user_model()._default_manager.filter(pk=item.user_key).values_list("pk", flat=True).first():
        write_log_entry(user, row, item.label, item.note)
