"""Search of the top bar: pages, actions, servers, jobs, executions, triggers and error codes."""

import re
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from controlplane.console.access import list_entries, viewable
from controlplane.console.formatting import page_url
from controlplane.console.page import render_page, require_reader, within_reach
from controlplane.console.presenters.jobs import name_job
from controlplane.console.selectors import jump
from controlplane.console.sidebar import BY_NAME

FOUND_OF_A_KIND = 6
LONGEST_QUERY = 200
CODE = re.compile(r"[A-Z][A-Za-z]*(_[A-Z0-9]+)+|[A-Z][A-Za-z]+(Error|Exception)")
"""Texts that look like an error code: WORKER_CRASHED, ValueError."""
ACTIONS = (
    ("Enter maintenance…", "instance:maintenance_enter", "liveness.change_maintenance"),
    ("Exit maintenance…", "instance:maintenance_exit", "liveness.change_maintenance"),
    ("Release the brake…", "instance:brake", "liveness.release_brake"),
    ("Add a trigger…", "instance:trigger_add", "jobs.add_trigger"),
)


@require_reader()
def show_search(request: HttpRequest) -> HttpResponse:
    """Show what matches `?q=`, as a page or as the list of the search dialog."""
    word = request.GET.get("q", "").strip().replace("\0", "")[:LONGEST_QUERY]
    found = [*find_pages(request, word), *find_objects(request, word)]
    if request.headers.get("X-Jump"):
        return render(request, "admin/instance/_jump_found.html", {"found": found, "word": word})
    shown = {"title": "Search", "found": found, "word": word}
    return render_page(request, "search", shown, lives=False)


def find_pages(request: HttpRequest, word: str) -> list[dict[str, Any]]:
    """Return the pages and actions whose name has this text, or all pages without a text."""
    user: Any = request.user
    entries = map(BY_NAME.__getitem__, list_entries(user))
    pages = [build_result("Page", entry.label, entry.url) for entry in entries if word.lower() in entry.label.lower()]
    actions = [
        build_result("Action", label, reverse(name))
        for label, name, permission in ACTIONS
        if word and word.lower() in label.lower() and user.has_perm(permission)
    ]
    return [*pages, *actions]


def find_objects(request: HttpRequest, word: str) -> list[dict[str, Any]]:
    """Return the servers, jobs, executions, triggers and errors that match, at most `FOUND_OF_A_KIND` of each."""
    if len(word) < 2:
        return []

    def within(rows: Any) -> Any:
        return within_reach(request, rows)

    sees, found = viewable(request.user), []
    if "job" in sees and CODE.fullmatch(word):
        found.append(build_result("Error", word, f"{reverse('instance:errors')}?{urlencode({'code': word})}"))
    kinds: list[tuple[str, Any, Any]] = [
        ("server", jump.find_servers, lambda row: row.name),
        ("job", jump.find_jobs, name_job),
        ("execution", jump.find_executions, lambda row: row.name),
        ("trigger", jump.find_triggers, lambda row: row.name),
    ]
    for kind, find, name in kinds:
        if kind in sees:
            found += [
                build_result(kind.capitalize(), name(row), page_url(kind, row.pk), str(getattr(row, "state", "")))
                for row in find(word, within, FOUND_OF_A_KIND)
            ]
    return found


def build_result(what: str, name: str, url: str, state: str = "") -> dict[str, Any]:
    return {"what": what, "name": name, "url": url, "state": state}
