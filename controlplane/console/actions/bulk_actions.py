"""Confirmation page of an action: it shows the effect (GET) and performs the action with a note (POST).

The URL names the objects: `?pick=ID` for each one, or `?all=1` with a filter. A single object is changed at once, if it
still has the state that the page showed. Several objects become a batch (jobs/services/batches.py), and the request
itself processes the first items. Objects that began to match the filter after the preview are left out.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.console.actions.confirmation import read_number, render_confirmation
from controlplane.console.actions.log_entries import write_log_entry
from controlplane.console.actions.selection import Selection, Target
from controlplane.console.actions.servers import OperatorAction, request_actor
from controlplane.console.page import (
    FORM_METHODS,
    View,
    reached_namespaces,
    require_permission,
    require_reader,
    sees,
)
from controlplane.core.ids import parse_uuid
from controlplane.core.problems import Problem
from jobs.models import Batch, BatchItem
from jobs.services import batches
from jobs.services.operator_actions import perform_operation
from jobs.states import BatchState, ItemOutcome

MOST_AT_ONCE, REFUSALS_SHOWN = 400, 10
BATCH = 200
"""Number of items that the request itself processes. The executors process the rest."""


def build_action_page(target: Target, action: OperatorAction) -> View:
    """Return the view of one action."""

    @require_reader(target.noun, FORM_METHODS)
    def show_action(request: HttpRequest) -> HttpResponse:
        require_permission(request, action.permission)
        selection = Selection.from_request(target, request)
        if not selection.filter and not 0 < len(selection.picks) <= MOST_AT_ONCE:
            messages.error(request, f"Select at least one {target.noun}, and at most {MOST_AT_ONCE}.")
            return redirect(selection.back)
        form = action.form(request.POST if request.method == "POST" else None)
        if not form.is_valid():
            return show_preview(request, selection, action, form)
        perform = perform_on_one if len(selection.picks) == 1 else perform_on_many
        return perform(request, selection, action, form)

    return show_action


def show_preview(
    request: HttpRequest, selection: Selection, action: OperatorAction, form: Any, problem: str = ""
) -> HttpResponse:
    """Show the effect of the action, or the reason why it was not performed."""
    target, shown = selection.target, {}
    if selection.filter:
        counts, _ = sort_outcomes(selection.rows, target, action)
        until = selection.rows.order_by("-pk").values_list("pk", flat=True).first()
        total, would = sum(counts.values()), counts[None]
        shown = {
            "summary": counts.most_common(),
            "until": until,
            "seen": total,
            "most": max(0, would - batches.MOST_ITEMS) and batches.MOST_ITEMS,
        }
        subject = f"{target.format_count(total)} ({selection.filter.words or 'all'})"
    else:
        rows = list(selection.rows)
        refusals = [(row, target.describe_row(row), action.refusal_reason(row)) for row in rows]
        total, would = len(rows), sum(refusal is None for *_, refusal in refusals)
        shown = {"rows": refusals, "consequences": sees(request, "job") and target.consequences(action.name, rows)}
        subject = target.describe_row(rows[0]) if total == 1 else target.format_count(total)
    return render_confirmation(
        request, f"{action.label}: {subject}", action, form, selection.back, problem, tab=f"{target.noun}s",
        one=target.one, noun=target.noun, would=would, total=total, **shown,
    )  # fmt: skip


def sort_outcomes(rows: QuerySet[Any], target: Target, action: OperatorAction) -> tuple[Counter[str | None], Q]:
    """Count the rows by the reason of refusal (None: allowed). Return also the condition for the allowed rows."""
    outcomes: Counter[str | None] = Counter()
    applies = []
    for row in rows.order_by().values(*target.decisive_columns).annotate(row_count=Count("pk")):
        count = row.pop("row_count")
        reason = action.refusal_reason(SimpleNamespace(**row))
        outcomes[reason] += count
        if reason is None:
            applies.append(
                Q(
                    **{
                        f"{name}__isnull" if value is None else name: value is None or value
                        for name, value in row.items()
                    }
                )
            )
    return outcomes, Q(*applies, _connector=Q.OR) if applies else Q(pk__in=[])


def perform_on_one(request: HttpRequest, selection: Selection, action: OperatorAction, form: Any) -> HttpResponse:
    """Perform the action at once. If it is refused, show the page again with a 409."""
    [pick], target = selection.picks, selection.target
    seen = dict(read_seen(request, selection)).get(pick)
    if seen is None:
        return show_preview(request, selection, action, form, "Nothing was selected.")
    user: Any = request.user
    try:
        result = perform_operation(
            action.operation, pick, request_actor(request), form.cleaned_data, seen,
            lambda row, _: write_log_entry(user.pk, row, action.label, form.cleaned_data["note"]),
        )  # fmt: skip
    except Problem as problem:
        return show_preview(request, selection, action, form, problem.detail)
    report_outcome(request, selection, action, 1, [])
    if isinstance(result, UUID):
        return redirect(target.one, result)
    return redirect(target.every if action.is_removal else selection.back)


def perform_on_many(request: HttpRequest, selection: Selection, action: OperatorAction, form: Any) -> HttpResponse:
    """Create a batch and process its first items."""
    target, left_out = selection.target, []
    if key := form.cleaned_data.get("key"):
        sent_before = Batch.objects.filter(key=key).first()
        if sent_before:
            return redirect("instance:batch", sent_before.pk)
    if selection.filter:
        until, seen = parse_uuid(request.POST.get("until")), read_number(request, "seen")
        if until is None:
            return show_preview(request, selection, action, form, "Open the preview first.")
        rows = selection.rows.filter(pk__lte=until)
        outcomes, applies = sort_outcomes(rows, target, action)
        if (matched := sum(outcomes.values())) > seen:
            grown = f"The preview showed {seen:,}, but now {matched:,} match."
            return show_preview(request, selection, action, form, grown)
        left_out = [(why, count) for why, count in outcomes.most_common() if why]
        ids = rows.filter(applies).order_by("pk").values_list("pk", flat=True)
        items = [(id, "") for id in ids[: batches.MOST_ITEMS]]
        chosen, nothing = selection.filter.words or "all", "It no longer applies to any of them."
    else:
        items, chosen, nothing = read_seen(request, selection), "selected one by one", "Nothing was selected."
    if not items:
        return show_preview(request, selection, action, form, nothing)
    parameters = {name: value for name, value in form.cleaned_data.items() if name != "note"}
    batch = batches.begin_batch(
        action.operation, request_actor(request), form.cleaned_data["note"], parameters, items, label=action.label,
        chosen=chosen, query=selection.filter.query if selection.filter else "", left_out=left_out,
        namespaces=reached_namespaces(request), user_key=str(request.user.pk),
    )  # fmt: skip
    batches.run_batch(batch, BATCH)
    return answer_batch(request, selection, action, form, Batch.objects.get(pk=batch))


def answer_batch(
    request: HttpRequest, selection: Selection, action: OperatorAction, form: Any, batch: Batch
) -> HttpResponse:
    """Redirect to the page of the batch. If few objects were picked and all are done, report the outcome instead."""
    if selection.filter or batch.state == BatchState.RUNNING or batch.refused > REFUSALS_SHOWN:
        return redirect("instance:batch", batch.pk)
    names = {row.pk: selection.target.describe_row(row) for row in selection.rows}
    items = BatchItem.objects.filter(batch=batch, outcome=ItemOutcome.REFUSED).order_by("id")
    refused = [f"{names.get(item.subject_id, item.subject_id)}: {item.reason}" for item in items]
    if not batch.done:
        return show_preview(request, selection, action, form, " ".join(refused))
    report_outcome(request, selection, action, batch.done, refused)
    return redirect(selection.back)


def read_seen(request: HttpRequest, selection: Selection) -> list[tuple[UUID, str]]:
    """Return (id, state) of each picked object, as the form showed it.

    For a held job the state includes its attempt.
    """
    seen = (text.partition(" ") for text in request.POST.getlist("seen"))
    ids = ((parse_uuid(id), state) for id, _, state in seen)
    return [(id, state) for id, state in dict(ids).items() if id and id in selection.picks and state]


def report_outcome(
    request: HttpRequest, selection: Selection, action: OperatorAction, done: int, refused: list[str]
) -> None:
    """Show messages with the numbers of objects. An object that has not ended yet counts as only requested."""
    count = selection.target.format_count
    open_ones = selection.rows.filter(finished_at=None).count() if action.requested else 0
    asked = min(done, max(0, open_ones - len(refused)))
    if done > asked:
        messages.success(request, f"{action.done or action.label}: {count(done - asked)}.")
    if asked:
        messages.success(request, f"{action.requested}: {count(asked)}. Waiting for the worker to confirm.")
    for reason in refused:
        messages.warning(request, f"Not done: {reason}")
