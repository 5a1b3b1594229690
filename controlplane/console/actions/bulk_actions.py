"""Between the wish and the deed: what would happen (GET), and, with a note, the deed itself (POST).

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

from controlplane.console.actions.servers import Action, actor
from controlplane.console.selectors.filters import Filter, as_uuid
from controlplane.console.views.not_found import HOME
from controlplane.console.views.page import ACTING, HtmxRequest, View, for_readers, page, permitted, sees
from controlplane.core.problems import Problem
from liveness.errors import ChangedSinceSeen

AT_ONCE, BATCH, REFUSALS_SHOWN = 400, 200, 10


@dataclass(frozen=True)
class Kind:
    """What can be acted on: servers, jobs or executions."""

    noun: str
    """As in `VIEWS`: its pages are for those who may view it."""
    rows: Callable[[], QuerySet[Any]]
    filter: type[Filter]
    decides: tuple[str, ...]
    """The columns that an action's `may` looks at."""
    every: str
    one: str
    said: Callable[[Any], str]
    locks: Q = field(default_factory=Q)
    """Which of them may be locked while it is looked whether they have changed."""
    consequences: Callable[[str, list[Any]], list[Any]] = field(default=lambda name, rows: [])
    """The jobs that would move too, of those that were picked: for those who may view jobs."""

    def plural(self, count: int) -> str:
        return f"{count:,} {self.noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Chosen:
    """What is acted on, as the address says it."""

    kind: Kind
    picks: list[UUID]
    filter: Filter | None

    @classmethod
    def of(cls, kind: Kind, request: HttpRequest) -> "Chosen":
        if request.GET.get("all"):
            return cls(kind, [], kind.filter(request.GET))
        found = (as_uuid(said) for said in request.GET.getlist("pick"))
        return cls(kind, [pick for pick in found if pick], None)

    @property
    def rows(self) -> QuerySet[Any]:
        return self.filter.apply(self.kind.rows()) if self.filter else self.kind.rows().filter(pk__in=self.picks)

    @property
    def back(self) -> str:
        if len(self.picks) == 1:
            return reverse(self.kind.one, args=self.picks)
        query = self.filter.query if self.filter else ""
        return reverse(self.kind.every) + (f"?{query}" if query else "")


def action_page(kind: Kind, action: Action) -> View:
    """The page of one action."""

    @for_readers(kind.noun, ACTING)
    def view(request: HtmxRequest) -> HttpResponse:
        permitted(request, action.permission)
        chosen = Chosen.of(kind, request)
        if not chosen.filter and not 0 < len(chosen.picks) <= AT_ONCE:
            messages.error(request, f"Choose a {kind.noun} first, and at most {AT_ONCE} at once.")
            return redirect(chosen.back)
        form = action.form(request.POST if request.method == "POST" else None)
        if not form.is_valid():
            return preview(request, chosen, action, form)
        perform = perform_batch if chosen.filter else perform_picked
        return perform(request, chosen, action, form)

    return view


def preview(request: HtmxRequest, chosen: Chosen, action: Action, form: Any, problem: str = "") -> HttpResponse:
    """What would happen; or, with a problem, why it did not."""
    kind, shown = chosen.kind, {}
    if chosen.filter:
        counts = outlook(chosen, action)
        until = chosen.rows.order_by("-pk").values_list("pk", flat=True).first()
        total, would = sum(counts.values()), counts[None]
        shown = {"summary": counts.most_common(), "until": until, "seen": total}
        whom = f"{kind.plural(total)} ({chosen.filter.words or 'all there are'})"
    else:
        rows = list(chosen.rows)
        refusals = [(row, kind.said(row), action.refusal(row)) for row in rows]
        total, would = len(rows), sum(refusal is None for *_, refusal in refusals)
        shown = {"rows": refusals, "consequences": sees(request, "job") and kind.consequences(action.name, rows)}
        whom = kind.said(rows[0]) if total == 1 else kind.plural(total)
    return confirmation(
        request, f"{action.label}: {whom}", action, form, chosen.back, problem,
        one=kind.one, noun=kind.noun, would=would, total=total, **shown,
    )  # fmt: skip


def confirmation(
    request: HtmxRequest, title: str, action: Any, form: Any, back: str, problem: str = "", **shown: Any
) -> HttpResponse:
    shown = {"title": title, "action": action, "form": form, "back": back, "problem": problem, **shown}
    return page(request, "confirm", {"trail": [HOME], **shown}, status=409 if problem else 200, lives=False)


def outlook(chosen: Chosen, action: Action) -> Counter[str | None]:
    """Of how many it would be done (None), and of how many it would be refused, by why."""
    found: Counter[str | None] = Counter()
    for row in chosen.rows.order_by().values(*chosen.kind.decides).annotate(found=Count("pk")):
        count = row.pop("found")
        found[action.refusal(SimpleNamespace(**row))] += count
    return found


def perform_picked(request: HtmxRequest, chosen: Chosen, action: Action, form: Any) -> HttpResponse:
    """Each for itself; a 409 with the page anew when nothing was done."""
    done, refused, names = 0, [], {row.pk: chosen.kind.said(row) for row in chosen.rows}
    found: Any = None
    for seen in request.POST.getlist("seen"):
        pk, _, state = seen.partition(" ")
        if as_uuid(pk) not in chosen.picks:
            continue
        try:
            found = perform(request, chosen.kind, action, UUID(pk), form.cleaned_data, state)
            done += 1
        except Problem as problem:
            refused.append(f"{names.get(UUID(pk), pk)}: {problem.detail}" if len(chosen.picks) > 1 else problem.detail)
    if not done:
        return preview(request, chosen, action, form, " ".join(refused[:REFUSALS_SHOWN]) or "Nothing was chosen.")
    conclude(request, chosen.kind, action, done, refused)
    if len(chosen.picks) == 1 and isinstance(found, UUID):
        return redirect(chosen.kind.one, found)
    return redirect(chosen.back)


def perform_batch(request: HtmxRequest, chosen: Chosen, action: Action, form: Any) -> HttpResponse:
    """The next of those that a filter matched when it was looked at."""
    until, after = as_uuid(request.POST.get("until")), as_uuid(request.POST.get("after"))
    seen, done, refused = (number(request, name) for name in ("seen", "done", "refused"))
    if until is None:
        return preview(request, chosen, action, form, "Look first at what would happen.")
    rows = chosen.rows.filter(pk__lte=until).order_by("pk")
    if after is None and (matched := rows.count()) > seen:
        grown = f"There were {seen:,} when you looked and there are {matched:,} now."
        return preview(request, chosen, action, form, grown)
    batch = list((rows.filter(pk__gt=after) if after else rows).values_list("pk", flat=True)[:BATCH])
    for pk in batch:
        try:
            perform(request, chosen.kind, action, pk, form.cleaned_data)
            done += 1
        except Problem:
            refused += 1
    if len(batch) < BATCH:
        conclude(request, chosen.kind, action, done, [f"{refused:,} to which it does not apply"] if refused else [])
        return redirect(chosen.back)
    shown = {"until": until, "after": batch[-1], "seen": seen, "done": done, "refused": refused}
    title = f"{action.label}: {done + refused:,} of {seen:,}"
    return confirmation(request, title, action, form, chosen.back, progress=True, past=done + refused, **shown)


def perform(
    request: HttpRequest, kind: Kind, action: Action, pk: UUID, said: dict[str, Any], seen: str | None = None
) -> Any:
    """It, to one, with an entry in the admin's log; only if it is as it was `seen`: its state, and the attempt of a job
    that is held. What the service returns."""
    rows = kind.rows().model._default_manager.filter(pk=pk)
    # Of the others the service has transactions of its own, which must not wait for each other.
    is_lockable = rows.filter(kind.locks).exists()
    with transaction.atomic() if is_lockable else nullcontext():
        row = rows.select_for_update(no_key=True).first() if is_lockable else rows.first()
        if row is not None and seen is not None:
            state, _, attempt = seen.partition(" ")
            if row.state != state:
                raise ChangedSinceSeen(f"It was {state} when you looked and is {row.state} now: look again.")
            if attempt and str(row.attempt_id) != attempt:
                raise ChangedSinceSeen("Another attempt has begun since you looked: look again.")
        found = action.act(pk, by=actor(request), **said)
        user: Any = request.user
        message = f"{action.label}: {said['note']}"
        LogEntry.objects.log_actions(user.pk, [row], CHANGE, message, single_object=True)
    return found


def conclude(request: HttpRequest, kind: Kind, action: Action, done: int, refused: list[str]) -> None:
    messages.success(request, f"{action.label}: done to {kind.plural(done)}.")
    for why in refused[:REFUSALS_SHOWN]:
        messages.warning(request, f"Not done: {why}")
    if len(refused) > REFUSALS_SHOWN:
        messages.warning(request, f"Not done to {len(refused) - REFUSALS_SHOWN} more.")


def number(request: HttpRequest, name: str) -> int:
    said = request.POST.get(name, "0")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 16 else 0
