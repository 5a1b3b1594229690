"""Whether a call that ended with the loss of the database may have changed something all the same."""

from typing import Any

from django.db import connection


def reset_may_have_changed() -> None:
    """From now on, in this thread."""
    ours: Any = connection
    ours.may_have_changed = False


def may_have_changed() -> bool:
    """Something, since this thread began to watch."""
    ours: Any = connection
    return bool(ours.may_have_changed)
