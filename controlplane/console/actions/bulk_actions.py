"""The page that an action is confirmed on: what would happen (GET), then, with a note, it happens (POST).

What is acted on stands in the address: `?pick=ID` for each that was chosen, or `?all=1` and a filter. What is picked
is done at once, each for itself, if it is still in the state in which it was seen. What a filter matches is done in
batches, one per request, with the progress between them; nothing that came after the look is touched.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.servers import OperatorAction, request_actor
from controlplane.console.selectors.filters import Filter, parse_uuid
from controlplane.console.views.not_found import HOME
from controlplane.console.views.page import (
    FORM_METHODS,
    View,
    render_page,
    require_permission,
    require_reader,
    sees,
)
from controlplane.core.problems import Problem
from liveness.errors import ChangedSinceSeen

MOST_AT_ONCE, BATCH, REFUSALS_SHOWN = 400, 200, 10


@dataclass(frozen=True)
class Target:
    """What can be acted on: servers, jobs or executions."""

    noun: str
    """As in `VIEWS`: its pages are for those who may view it."""
    rows: Callable[[], QuerySet[Any]]
    filter: type[Filter]
    decisive_columns: tuple[str, ...]
    """The columns that an action's `guard` looks at."""
    every: str
    one: str
    describe_row: Callable[[Any], str]
    locks: Q = field(default_factory=Q)
    """Which of them may be locked while it is looked whether they have changed."""
    consequences: Callable[[str, list[Any]], list[Any]] = field(default=lambda name, rows: [])
    """The jobs that would move too, of those that were picked: for those who may view jobs."""

    def format_count(self, count: int) -> str:
        return f"{count:,} {self.noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Selection:
    """What is acted on, as the address says it."""

    target: Target
    picks: list[UUID]
    filter: Filter | None

    @classmethod
    def from_request(cls, target: Target, request: HttpRequest) -> "Selection":
        if request.GET.get("all"):
            return cls(target, [], target.filter(request.GET))
        ids = (parse_uuid(text) for text in request.GET.getlist("pick"))
        return cls(target, [pick for pick in ids if pick], None)

    @property
    def rows(self) -> QuerySet[Any]:
        return (
            self.filter.filter_rows(self.target.rows()) if self.filter else self.target.rows().filter(pk__in=self.picks)
        )

    @property
    def back(self) -> str:
        if len(self.picks) == 1:
            return reverse(self.target.one, args=self.picks)
        query = self.filter.query if self.filter else ""
        return reverse(self.target.every) + (f"?{query}" if query else "")


def build_action_page(target: Target, action: OperatorAction) -> View:
    """The page of one action."""

    @require_reader(target.noun, FORM_METHODS)
    def show_action(request: HttpRequest) -> HttpResponse:
        require_permission(request, action.permission)
        selection = Selection.from_request(target, request)
        if not selection.filter and not 0 < len(selection.picks) <= MOST_AT_ONCE:
            messages.error(request, f"Choose a {target.noun} first, and at most {MOST_AT_ONCE} at once.")
            return redirect(selection.back)
        form = action.form(request.POST if request.method == "POST" else None)
        if not form.is_valid():
            return show_preview(request, selection, action, form)
        perform = perform_next_batch if selection.filter else perform_on_picked
        return perform(request, selection, action, form)

    return show_action


def show_preview(
    request: HttpRequest, selection: Selection, action: OperatorAction, form: Any, problem: str = ""
) -> HttpResponse:
    """What would happen; or, with a problem, why it did not."""
    target, shown = selection.target, {}
    if selection.filter:
        counts = count_outcomes(selection, action)
        until = selection.rows.order_by("-pk").values_list("pk", flat=True).first()
        total, would = sum(counts.values()), counts[None]
        shown = {"summary": counts.most_common(), "until": until, "seen": total}
        subject = f"{target.format_count(total)} ({selection.filter.words or 'all there are'})"
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


def render_confirmation(
    request: HttpRequest, title: str, action: Any, form: Any, back: str, problem: str = "", **shown: Any
) -> HttpResponse:
    shown = {"title": title, "action": action, "form": form, "back": back, "problem": problem, **shown}
    return render_page(request, "confirm", {"trail": [HOME], **shown}, status=409 if problem else 200, lives=False)


def count_outcomes(selection: Selection, action: OperatorAction) -> Counter[str | None]:
    """Of how many it would be done (None), and of how many it would be refused, by why."""
    outcomes: Counter[str | None] = Counter()
    for row in selection.rows.order_by().values(*selection.target.decisive_columns).annotate(row_count=Count("pk")):
        count = row.pop("row_count")
        outcomes[action.refusal_reason(SimpleNamespace(**row))] += count
    return outcomes


def perform_on_picked(request: HttpRequest, selection: Selection, action: OperatorAction, form: Any) -> HttpResponse:
    """Each for itself; a 409 with the page again when nothing was done."""
    done, refused, names = 0, [], {row.pk: selection.target.describe_row(row) for row in selection.rows}
    result: Any = None
    for seen in request.POST.getlist("seen"):
        pk, _, state = seen.partition(" ")
        if parse_uuid(pk) not in selection.picks:
            continue
        try:
            result = perform_action(request, selection.target, action, UUID(pk), form.cleaned_data, state)
            done += 1
        except Problem as problem:
            refused.append(
                f"{names.get(UUID(pk), pk)}: {problem.detail}" if len(selection.picks) > 1 else problem.detail
            )
    if not done:
        return show_preview(
            request, selection, action, form, " ".join(refused[:REFUSALS_SHOWN]) or "Nothing was chosen."
        )
    report_outcome(request, selection.target, action, done, refused)
    if len(selection.picks) == 1 and isinstance(result, UUID):
        return redirect(selection.target.one, result)
    return redirect(selection.target.every if action.is_removal else selection.back)


def perform_next_batch(request: HttpRequest, selection: Selection, action: OperatorAction, form: Any) -> HttpResponse:
    """The next of those that a filter matched when it was looked at."""
    until, after = parse_uuid(request.POST.get("until")), parse_uuid(request.POST.get("after"))
    seen, done, refused = (read_number(request, name) for name in ("seen", "done", "refused"))
    if until is None:
        return show_preview(request, selection, action, form, "Look at the preview first.")
    rows = selection.rows.filter(pk__lte=until).order_by("pk")
    if after is None and (matched := rows.count()) > seen:
        grown = f"There were {seen:,} when you looked and there are {matched:,} now."
        return show_preview(request, selection, action, form, grown)
    batch = list((rows.filter(pk__gt=after) if after else rows).values_list("pk", flat=True)[:BATCH])
    for pk in batch:
        try:
            perform_action(request, selection.target, action, pk, form.cleaned_data)
            done += 1
        except Problem:
            refused += 1
    if len(batch) < BATCH:
        report_outcome(
            request, selection.target, action, done, [f"{refused:,} to which it does not apply"] if refused else []
        )
        return redirect(selection.back)
    shown = {"until": until, "after": batch[-1], "seen": seen, "done": done, "refused": refused}
    title = f"{action.label}: {done + refused:,} of {seen:,}"
    return render_confirmation(
        request,
        title,
        action,
        form,
        selection.back,
        progress=True,
        past=done + refused,
        tab=f"{selection.target.noun}s",
        **shown,
    )


def perform_action(
    request: HttpRequest,
    target: Target,
    action: OperatorAction,
    pk: UUID,
    parameters: dict[str, Any],
    seen: str | None = None,
) -> Any:
    """It, to one, with an entry in the admin's log; only if it is as it was `seen`: its state, and the attempt of a job
    that is held. What the service returns."""
    rows = target.rows().model._default_manager.filter(pk=pk)
    # Of the others the service has transactions of its own, which must not wait for each other.
    is_lockable = rows.filter(target.locks).exists()
    with transaction.atomic() if is_lockable else nullcontext():
        row = rows.select_for_update(no_key=True).first() if is_lockable else rows.first()
        if row is not None and seen is not None:
            state, _, attempt = seen.partition(" ")
            if row.state != state:
                raise ChangedSinceSeen(f"It was {state} when you looked and is {row.state} now: look again.")
            if attempt and str(row.attempt_id) != attempt:
                raise ChangedSinceSeen("Another attempt has started since you looked: look again.")
        result = action.service(pk, by=request_actor(request), **parameters)
        user: Any = request.user
        message = f"{action.label}: {parameters['note']}".rstrip(": ")
        LogEntry.objects.log_actions(user.pk, [row], CHANGE, message, single_object=True)
    return result


def report_outcome(request: HttpRequest, target: Target, action: OperatorAction, done: int, refused: list[str]) -> None:
    messages.success(request, f"{action.label}: done to {target.format_count(done)}.")
    for reason in refused[:REFUSALS_SHOWN]:
        messages.warning(request, f"Not done: {reason}")
    if len(refused) > REFUSALS_SHOWN:
        messages.warning(request, f"Not done to {len(refused) - REFUSALS_SHOWN} more.")


def read_number(request: HttpRequest, name: str) -> int:
    text = request.POST.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
