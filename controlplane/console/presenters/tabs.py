"""The tabs of the Instance pages, with how many there are of what each is looked at for."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from django.urls import reverse

from jobs.sql.rows.tabs import TabCount

COUNTED = {
    "servers": {"silent": "silent", "lost": "lost or on their way out"},
    "jobs": {"waiting": "waiting", "claimed": "claimed", "running": "running"},
    "executions": {"executions": "under way"},
    "alerts": {"incidents": "open"},
    "maintenance": {"maintenances": "in force"},
    "brake": {"brakes": "engaged"},
    "quarantine": {"quarantined": "to be looked at"},
}
"""What a tab tells the number of, as `tab_counts()` has it and in words."""
GRAVE = {"servers", "alerts", "brake", "quarantine"}
"""The tabs whose number is none while all is well."""


def present_tabs(tabs: Iterable[str], counts: Iterable[TabCount]) -> list[dict[str, Any]]:
    found = {count.sort: count for count in counts}
    return [present_tab(tab, found) for tab in tabs]


@cache
def tab_url(tab: str) -> str:
    return reverse(f"instance:{tab}")


def present_tab(tab: str, found: dict[str, TabCount]) -> dict[str, Any]:
    """A tab; without a number where there is nothing to tell."""
    words = COUNTED.get(tab, {})
    known = [found[sort] for sort in words if sort in found and found[sort].found]
    return {
        "name": tab,
        "url": tab_url(tab),
        "label": tab.capitalize(),
        "count": format_count(sum(count.found for count in known), any(count.is_full for count in known)),
        "words": ", ".join(f"{format_count(count.found, count.is_full)} {words[count.sort]}" for count in known),
        "is_grave": tab in GRAVE,
    }


def format_count(count: int, is_full: bool) -> str:
    return f"{count:,}{'+' if is_full else ''}" if count else ""
