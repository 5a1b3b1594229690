"""What is done from the pages stands in the admin's log as well, beside the event that the service writes."""

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model

from liveness.services.operator_events import OPERATOR


def write_log_entry(user: Any, row: Any, label: str, note: str) -> None:
    """The entry of one thing, by the key of a user."""
    LogEntry.objects.log_actions(user, [row], CHANGE, f"{label}: {note}".rstrip(": "), single_object=True)


def log_item(sender: object, item: Any, row: Any, **_: object) -> None:
    """The entry of what a batch has done, by whoever began it; none where he is no user any more."""
    model = get_user_model()
    users = model._default_manager.filter(**{model.USERNAME_FIELD: item.actor.removeprefix(OPERATOR)})
    if row is not None and (user := users.values_list("pk", flat=True).first()):
        write_log_entry(user, row, item.label, item.note)
