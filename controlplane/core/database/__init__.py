"""Whether a call that ended with the loss of the database may have changed something all the same."""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections


def reset_may_have_changed() -> None:
    """From now on, in this thread."""
    ours: Any = connections[DEFAULT_DB_ALIAS]
    if hasattr(ours, "may_have_changed"):
        ours.may_have_changed = False


def may_have_changed() -> bool:
    """Something, since this thread began to watch; a project's own engine does not know, so that it may."""
    return bool(getattr(connections[DEFAULT_DB_ALIAS], "may_have_changed", True))
