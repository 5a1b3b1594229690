"""Page that a browser gets instead of a problem document while the control plane is temporarily unavailable."""

from django.template.loader import render_to_string

CONTENT_TYPE = "text/html; charset=utf-8"
RELOADS_AFTER = 5
"""Seconds until the page reloads itself."""


def wants_page(path: str, accept: str) -> bool:
    """Return True if a person opened this address in a browser. Return False for a call by a program."""
    if "/api/" in path:
        return False
    return "text/html" in accept or ("/instance/" in path and "json" not in accept)


def build_unavailable_page(reason: str, *, reloads: bool) -> bytes:
    """Return a page that needs no database.

    With `reloads`, the page reloads itself. Leave that out if a reload would hide the outcome of a form.
    """
    shown = {"reason": reason, "reloads_after": RELOADS_AFTER if reloads else None}
    return render_to_string("admin/unavailable.html", shown).encode()
