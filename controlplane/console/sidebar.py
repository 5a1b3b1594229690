"""Entries of the sidebar: the pages of the console, what a user must be able to view, and their counts.

A new page needs one line in `ENTRIES`.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.urls import NoReverseMatch, reverse

from jobs.sql.rows.tabs import TabCount


@dataclass(frozen=True)
class NavEntry:
    """Line of the sidebar. It leads to a page of the console or to another page of the site."""

    name: str
    """Name of the page's URL. The namespace `instance:` is added if the name has none."""
    label: str
    icon: str
    """Path of a drawing of 16 × 16 units."""
    group: str = ""
    shows: str | None = None
    """Kind of object that the user must be able to view (a key of `VIEWS`). None means any kind."""
    is_about_instance: bool = False
    """True for pages about the whole control plane. They need access to the namespace `default`."""
    key: str = ""
    """Keyboard shortcut: `g` followed by this key opens the page."""
    below: tuple[str, ...] = ()
    """Names of other pages that highlight this entry."""
    counts: dict[str, str] = field(default_factory=dict)
    """Counts beside the label: names that `tab_counts()` returns, each with its text."""
    is_grave: bool = False
    """True if a count means that somebody must act."""
    permission: str = ""
    """Further permission that the page needs."""

    @property
    def url(self) -> str:
        """Return the address of the page, or an empty text if this project does not have the page."""
        return find_url(self.name if self.is_outside else f"instance:{self.name}")

    @property
    def is_outside(self) -> bool:
        return ":" in self.name or "-" in self.name

    def is_open_to(self, viewable: Container[str], *, is_all: bool) -> bool:
        """Return True if a user may open the page.

        `viewable` are their kinds of objects; `is_all` means all namespaces.
        """
        return (self.shows is None or self.shows in viewable) and (is_all or not self.is_about_instance)


def find_url(name: str) -> str:
    try:
        return reverse(name)
    except NoReverseMatch:
        return ""


RESPOND, CONTROL, CONNECT = "Respond", "Control", "Connect"
# fmt: off
ENTRIES = (
    NavEntry("overview", "Overview", "M2 9h5V2H2zM9 14h5V7H9zM2 14h5v-3H2zM9 5h5V2H9z",
             is_about_instance=True, key="o"),
    NavEntry("servers", "Servers", "M2.5 2.5h11v4.5h-11zM2.5 9h11v4.5h-11zM5 4.8h.01M5 11.2h.01",
             shows="server", key="s", below=("server",), counts={"silent": "silent", "lost": "lost or ending"},
             is_grave=True),
    NavEntry("jobs", "Jobs", "M3 4h10M3 8h10M3 12h6", shows="job", key="j", below=("job", "log", "errors", "batches"),
             counts={"waiting": "waiting", "claimed": "claimed", "running": "running"}),
    NavEntry("queues", "Queues", "M2 3h12v3H2zM2 8h8v2H2zM2 12h5v2H2z", shows="job", key="u"),
    NavEntry("executions", "Executions", "M2 4a2 2 0 104 0 2 2 0 10-4 0M10 8a2 2 0 104 0 2 2 0 10-4 0"
             "M2 12a2 2 0 104 0 2 2 0 10-4 0M6 4.6l4 2.6M6 11.4l4-2.6",
             shows="execution", key="e", below=("execution",), counts={"executions": "running"}),
    NavEntry("triggers", "Triggers", "M2 8a6 6 0 1012 0 6 6 0 10-12 0M8 4.5V8l2.5 1.5", shows="trigger", key="t",
             below=("trigger", "trigger_form")),
    NavEntry("trends", "Trends", "M2 12l4-5 3 3 5-7", shows="job", is_about_instance=True),
    NavEntry("alerts", "Alerts", "M4 11V7a4 4 0 018 0v4l1 1H3zM7 14h2", RESPOND, is_about_instance=True, key="l",
             below=("incident",), counts={"incidents": "open"}, is_grave=True),
    NavEntry("answers", "Answers", "M2.5 3h11v8h-6l-3 3v-3h-2zM5 6h6M5 8.5h4", RESPOND, shows="execution", key="w",
             below=("answer",), counts={"answers": "waiting for a person"}),
    NavEntry("quarantine", "Quarantine", "M8 2l6 3v4c0 3-3 4.5-6 5-3-.5-6-2-6-5V5z", RESPOND, shows="job", key="q",
             counts={"quarantined": "to review"}, is_grave=True),
    NavEntry("activity", "Activity", "M2 8h3l2-5 3 10 2-5h2", RESPOND, is_about_instance=True, key="a"),
    NavEntry("maintenance", "Maintenance & brake", "M10 2a4 4 0 00-3.6 5.6L2 12l2 2 4.4-4.4A4 4 0 1010 2z", CONTROL,
             shows="server", is_about_instance=True, key="m", below=("brake",),
             counts={"maintenances": "active", "brakes": "engaged"}, is_grave=True),
    NavEntry("limits", "Limits", "M3 13a6.5 6.5 0 1110 0M8 10l3-4", CONTROL, shows="job"),
    NavEntry("holds", "Holds", "M4 3h3v10H4zM9 3h3v10H9z", CONTROL, shows="job", key="h", counts={"holds": "in force"}),
    NavEntry("recovery", "Manual recovery", "M3 8a5 5 0 105-5M3 3v3h3", CONTROL,
             shows="job", is_about_instance=True, key="r"),
    NavEntry("tokens", "API tokens", "M2.5 10.5a3 3 0 106 0 3 3 0 10-6 0M8 8l5-5M11 5l2 2", CONNECT, shows="server",
             permission="liveness.view_apitoken"),
    NavEntry("controlplane-docs", "API reference", "M4 2h6l3 3v9H4zM10 2v3h3", CONNECT),
)
# fmt: on
BY_NAME = {entry.name: entry for entry in ENTRIES}
ON_PHONES = ("overview", "servers", "jobs", "alerts")
"""Entries in the bottom bar of phones. *More* shows all."""
ENTRY_OF_PAGE = {page: entry.name for entry in ENTRIES for page in (entry.name, *entry.below)}
"""Name of the entry to highlight, by the name of the page."""


def present_sidebar(
    names: Iterable[str], counts: Iterable[TabCount], page: str, highlighted: str = ""
) -> list[dict[str, Any]]:
    """Return the groups of entries with these names. `page` is the name of the shown page.

    `highlighted` is the entry to highlight for a page that belongs to several entries, like a confirmation page.
    """
    found = {count.sort: count for count in counts}
    above = ENTRY_OF_PAGE.get(highlighted or page, "")
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in map(BY_NAME.__getitem__, names):
        current = "" if entry.name != above else "page" if entry.name == page else "true"
        groups.setdefault(entry.group, []).append({**present_entry(entry, found), "current": current})
    return [{"label": label, "entries": entries} for label, entries in groups.items()]


def present_entry(entry: NavEntry, found: dict[str, TabCount]) -> dict[str, Any]:
    """Return an entry. Its count is empty if it is zero."""
    known = [found[sort] for sort in entry.counts if sort in found and found[sort].found]
    return {
        "name": entry.name,
        "url": entry.url,
        "label": entry.label,
        "icon": entry.icon,
        "on_phones": entry.name in ON_PHONES,
        "count": format_count(sum(count.found for count in known), any(count.is_full for count in known)),
        "words": ", ".join(f"{format_count(count.found, count.is_full)} {entry.counts[count.sort]}" for count in known),
        "is_grave": entry.is_grave,
    }


def format_count(count: int, is_full: bool) -> str:
    return f"{count:,}{'+' if is_full else ''}" if count else ""
