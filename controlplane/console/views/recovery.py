"""Recovery by hand: what is stale, and the two things that can be done about all of it at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.bulk_actions import confirmation, number
from controlplane.console.actions.servers import NoteForm, actor
from controlplane.console.presenters.words import counted
from controlplane.console.views.not_found import HOME
from controlplane.console.views.page import ACTING, HtmxRequest, for_readers, page, permitted
from jobs.conf import conf
from jobs.services import sweep
from jobs.states import AttemptState
from liveness import selectors as liveness

PERMISSION = "jobs.recover_workerjob"
LONGEST = 366 * 86400


@dataclass(frozen=True)
class ByHand:
    name: str
    label: str
    then: str
    state: AttemptState
    act: Callable[..., int]


BY_HAND = {
    way.name: way
    for way in (
        ByHand(
            "requeue-stale-claimed", "Requeue stale claims",
            "Each is taken from its worker and waits again; it counts as no loss, since its code never began.",
            AttemptState.CLAIMED, sweep.requeue_stale_claimed,
        ),
        ByHand(
            "fail-stale-running", "Fail stale runners",
            "Each attempt and its job are FAILED with WORKER_CRASHED, whatever the job says of lost workers. They are "
            "found in quarantine.",
            AttemptState.RUNNING, sweep.fail_stale_running,
        ),
    )
}  # fmt: skip


class Thresholds(forms.Form):
    claimed = forms.FloatField(min_value=0, max_value=LONGEST, label="claimed, silent for (s)")
    running = forms.FloatField(min_value=0, max_value=LONGEST, label="running, silent for (s)")

    @classmethod
    def asked(cls, request: HttpRequest) -> "Thresholds":
        """As asked for; what the sweep goes by where nothing is said."""
        usual = {"claimed": conf().claimed_stale_after, "running": conf().running_stale_after}
        form = cls({**usual, **{name: value for name, value in request.GET.items() if name in usual and value}})
        form.use_required_attribute = False
        return form


@for_readers("job")
def stale(request: HtmxRequest) -> HttpResponse:
    """The live attempts without a sign of life for longer than the thresholds, the most silent first."""
    form = Thresholds.asked(request)
    found: list[Any] = []
    ways = []
    if form.is_valid():
        said = form.cleaned_data
        found = sweep.stale(said["claimed"], said["running"])
        for way in BY_HAND.values():
            older_than = said[way.state.lower()]
            count = sweep.count_stale(older_than).get(way.state, 0)
            url = f"{reverse('instance:by_hand', args=[way.name])}?older_than={older_than:g}"
            ways.append({"way": way, "count": count, "older_than": f"{older_than:g}", "url": url})
    shown = {
        "title": "Recovery by hand",
        "trail": [HOME],
        "filter": form,
        "filters": "recovery",
        "ways": ways,
        "found": [{"it": row, "silence": counted(row.heard_at, "age", row.silence)} for row in found],
        "may": request.user.has_perm(PERMISSION),
        "sweep": conf().sweep_interval,
        "unwritten": liveness.unwritten(),
    }
    return page(request, "recovery", shown)


@for_readers("job", ACTING)
def by_hand(request: HtmxRequest, name: str) -> HttpResponse:
    """One of the two: with a look at how many (GET), and a note (POST)."""
    if name not in BY_HAND:
        raise Http404(f"There is no {name}.")
    permitted(request, PERMISSION)
    way = BY_HAND[name]
    asked = Thresholds({"claimed": request.GET.get("older_than"), "running": request.GET.get("older_than")})
    if not asked.is_valid():
        messages.error(request, "Say after how many seconds of silence.")
        return redirect("instance:recovery")
    older_than = asked.cleaned_data["running"]
    count = sweep.count_stale(older_than).get(way.state, 0)
    form = NoteForm(request.POST if request.method == "POST" else None)
    problem = ""
    if form.is_valid():
        seen = number(request, "seen")
        if count <= seen and count:
            return done(request, way, older_than, form.cleaned_data["note"])
        problem = f"There were {seen:,} when you looked and there are {count:,} now: look again."
    title = f"{way.label}: {count:,} silent for more than {older_than:g} s"
    back = reverse("instance:recovery")
    return confirmation(request, title, way, form, back, problem, noun="attempt", would=count, total=count, seen=count)


def done(request: HttpRequest, way: ByHand, older_than: float, note: str) -> HttpResponse:
    user: Any = request.user
    count = way.act(older_than, actor(request), note)
    LogEntry.objects.create(
        user_id=user.pk, action_flag=CHANGE, object_repr=f"{count} attempts", change_message=f"{way.label}: {note}"
    )
    messages.success(request, f"{way.label}: done to {count:,}.")
    return redirect("instance:recovery")
