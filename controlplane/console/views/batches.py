"""Pages of bulk actions: the list, and one action with its progress and the outcome of each item."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.selection import Target
from controlplane.console.actions.servers import NoteForm, request_actor
from controlplane.console.actions.targets import PERMISSIONS, TARGETS
from controlplane.console.formatting import page_url, seconds_until, time_since
from controlplane.console.page import (
    FORM_METHODS,
    HOME,
    reached_namespaces,
    render_page,
    require_permission,
    require_reader,
    show_not_found,
    viewable,
)
from controlplane.console.presenters.jobs import short_id
from controlplane.core.ids import parse_uuid
from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.problems import Problem
from jobs.models import Batch, BatchItem
from jobs.permissions import VIEWS
from jobs.selectors.batches import count_refusals, visible_batches
from jobs.services import batches
from jobs.states import BatchState, ItemOutcome
from liveness.states import Subject

BATCHES_A_PAGE, ITEMS_A_PAGE, REASONS_SHOWN = 50, 100, 10
STALLED_AFTER = 30
"""Seconds without a processed item after which the page shows the action as stalled."""
TRAIL = [HOME, ("Jobs", "instance:jobs"), ("Bulk actions", "instance:batches")]


@dataclass(frozen=True)
class StopAction:
    label: str = "Stop"
    then: str = "No more items are processed. Processed items are not undone."
    name: str = "stop"
    is_grave: bool = True


@require_reader()
def show_batches(request: HttpRequest) -> HttpResponse:
    """Show the bulk actions that the user may view, latest first. `?before=` an id shows the next page."""
    before = parse_uuid(request.GET.get("before"))
    rows = (
        batches_within_reach(request)
        .filter(subject_type__in=viewable(request.user))
        .annotate(now=ClockTimestamp())
        .order_by("-pk")
    )
    page = list((rows.filter(pk__lt=before) if before else rows)[: BATCHES_A_PAGE + 1])
    shown = {
        "title": "Bulk actions",
        "trail": TRAIL[:-1],
        "batches": [present_batch(batch) for batch in page[:BATCHES_A_PAGE]],
        "before": before,
        "older": len(page) > BATCHES_A_PAGE and f"?before={page[BATCHES_A_PAGE - 1].pk}",
    }
    return render_page(request, "batches", shown)


@require_reader()
def show_batch(request: HttpRequest, batch: UUID) -> HttpResponse:
    """Show one bulk action: progress, reasons of refusals, and its items.

    `?after=` an item number shows the next page.
    """
    row: Any = find_batch(request, batch)
    if row is None:
        return show_not_found(request, "bulk action", "batches")
    outcome = request.GET.get("outcome", "")
    outcome = outcome if outcome in set(ItemOutcome) else ""
    after = int(text) if (text := request.GET.get("after", "")).isdigit() and text.isascii() and len(text) < 19 else 0
    items = BatchItem.objects.filter(batch=batch, id__gt=after).order_by("id")
    page = list((items.filter(outcome=outcome) if outcome else items)[: ITEMS_A_PAGE + 1])
    target = TARGETS[row.subject_type]
    counts = {ItemOutcome.DONE: row.done, ItemOutcome.REFUSED: row.refused, ItemOutcome.PENDING: pending(row)}
    shown = {
        "title": f"{row.label}: {target.format_count(row.total)}",
        "trail": TRAIL,
        "tab": target.every.removeprefix("instance:"),
        **present_batch(row),
        "list": f"{reverse(target.every)}?{row.query}".rstrip("?"),
        "noun": target.noun,
        "outcomes": counts.items(),
        "outcome": outcome,
        "reasons": count_refusals(batch, REASONS_SHOWN) if row.refused else [],
        "items": present_items(target, page[:ITEMS_A_PAGE]),
        "after": after,
        "more": len(page) > ITEMS_A_PAGE and f"?outcome={outcome}&after={page[ITEMS_A_PAGE - 1].pk}",
        "may_stop": row.state == BatchState.RUNNING and request.user.has_perm(PERMISSIONS.get(row.operation, "")),
    }
    return render_page(request, "batch", shown)


@require_reader(methods=FORM_METHODS)
def show_stop(request: HttpRequest, batch: UUID) -> HttpResponse:
    """Show the effect of stopping a bulk action (GET), or stop it with a note (POST). Return 409 if it has ended."""
    row: Any = find_batch(request, batch)
    if row is None:
        return show_not_found(request, "bulk action", "batches")
    require_permission(request, PERMISSIONS.get(row.operation, ""))
    form, problem = NoteForm(request.POST if request.method == "POST" else None), ""
    if form.is_valid():
        try:
            batches.stop_batch(batch, request_actor(request), form.cleaned_data["note"])
        except Problem as ended:
            problem = ended.detail
        else:
            messages.success(request, "Stopped.")
            return redirect("instance:batch", batch)
    title = f"Stop: {row.label}, {pending(row):,} of {TARGETS[row.subject_type].format_count(row.total)} remaining"
    return render_confirmation(
        request, title, StopAction(), form, reverse("instance:batch", args=[batch]), problem,
        tab="jobs", noun="bulk action", would=int(row.state == BatchState.RUNNING), total=1,
    )  # fmt: skip


def batches_within_reach(request: HttpRequest) -> QuerySet[Batch]:
    return visible_batches(reached_namespaces(request))


def find_batch(request: HttpRequest, batch: UUID) -> Batch | None:
    """Return the batch, or None if it does not exist. Raise PermissionDenied if the user may not view its items."""
    row = batches_within_reach(request).annotate(now=ClockTimestamp()).filter(pk=batch).first()
    if row is not None and row.subject_type not in viewable(request.user):
        raise PermissionDenied(f"This needs the permission {VIEWS[row.subject_type]}.")
    return row


def pending(batch: Batch) -> int:
    return batch.total - batch.done - batch.refused


def present_batch(batch: Any) -> dict[str, Any]:
    """Return a batch as its page and the list show it."""
    shares, at = [], 0.0
    for outcome, count in (
        (ItemOutcome.DONE, batch.done), (ItemOutcome.REFUSED, batch.refused), (ItemOutcome.PENDING, pending(batch)),
    ):  # fmt: skip
        if count:
            share = 100 * count / batch.total
            shares.append((outcome, count, f"{at:.2f}%", f"{share:.2f}%"))
            at += share
    goes_on = batch.state == BatchState.RUNNING
    passed, ended = (batch.now - batch.created_at).total_seconds(), batch.done + batch.refused
    idle = (batch.now - batch.worked_on_at).total_seconds()
    return {
        "batch": batch,
        "row": {"shares": shares},
        "whom": TARGETS[Subject(batch.subject_type)].format_count(batch.total),
        "ended": ended,
        "pending": pending(batch),
        "begun": time_since(batch.created_at, batch.now),
        "finished": batch.finished_at and time_since(batch.finished_at, batch.now),
        "left": goes_on and ended and passed and seconds_until(passed / ended * pending(batch), batch.now),
        "stalled": goes_on and idle > STALLED_AFTER and time_since(batch.worked_on_at, batch.now),
    }


def present_items(target: Target, items: list[BatchItem]) -> list[dict[str, Any]]:
    """Return items with their names and current states. A deleted object has only its id."""
    rows: dict[UUID, Any] = target.rows().in_bulk([item.subject_id for item in items])
    return [
        {
            "it": item,
            "name": target.describe_row(row) if row else short_id(item.subject_id),
            "url": row and page_url(target.noun, item.subject_id),
            "state": row and row.state,
            "result": item.result_id and page_url(target.noun, item.result_id),
        }
        for item in items
        for row in [rows.get(item.subject_id)]
    ]
