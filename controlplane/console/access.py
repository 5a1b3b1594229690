"""Access to the console: the kinds of objects that a user may view, and the pages that they may open."""

from typing import Any

from controlplane.console.sidebar import ENTRIES
from jobs.permissions import VIEWS
from liveness.selectors.namespaces import namespaces_of_person, reaches_instance


def viewable(user: Any) -> frozenset[str]:
    """Return the kinds of objects (keys of `VIEWS`) that this user may view."""
    return frozenset(what for what, permission in VIEWS.items() if user.has_perm(permission))


def list_entries(user: Any) -> list[str]:
    """Return the names of the sidebar's entries that the user may open."""
    kinds, is_all = viewable(user), reaches_instance(namespaces_of_person(user))
    if not kinds:
        return []
    return [
        entry.name
        for entry in ENTRIES
        if entry.is_open_to(kinds, is_all=is_all)
        and (not entry.is_outside or entry.url)
        and (not entry.permission or user.has_perm(entry.permission))
    ]
