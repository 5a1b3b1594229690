"""Manual recovery: the stale attempts, and two actions on all of them at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.confirmation import read_number, render_confirmation
from controlplane.console.actions.servers import NoteForm, request_actor
from controlplane.console.formatting import counting_time
from controlplane.console.page import FORM_METHODS, HOME, render_page, require_permission, require_reader
from controlplane.core.durations import LONGEST_WAIT
from jobs.conf import conf
from jobs.services import sweep
from jobs.states import AttemptState
from liveness.selectors.events import rows_left_out

PERMISSION = "jobs.recover_workerjob"


@dataclass(frozen=True)
class RecoveryAction:
    name: str
    label: str
    then: str
    state: AttemptState
    service: Callable[..., int]
    is_grave: bool = False


MANUAL_RECOVERIES = {
    recovery.name: recovery
    for recovery in (
        RecoveryAction(
            "requeue-stale-claimed", "Requeue stale claims",
            "Each job is taken from its worker and waits again. This does not count as a loss, because its code has "
            "not started.",
            AttemptState.CLAIMED, sweep.requeue_stale_claimed,
        ),
        RecoveryAction(
            "fail-stale-running", "Fail stale runners",
            "Each attempt and its job are FAILED with WORKER_CRASHED, even if the job allows resubmission. The jobs "
            "are then in quarantine.",
            AttemptState.RUNNING, sweep.fail_stale_running, is_grave=True,
        ),
    )
}  # fmt: skip


class Thresholds(forms.Form):
    claimed = forms.FloatField(min_value=0, max_value=LONGEST_WAIT, label="claimed, silent for (s)")
    running = forms.FloatField(min_value=0, max_value=LONGEST_WAIT, label="running, silent for (s)")

    @classmethod
    def from_request(cls, request: HttpRequest) -> "Thresholds":
        """Return the form with the thresholds in the request.

        Missing thresholds come from the settings of the sweep.
        """
        usual = {"claimed": conf().claimed_stale_after, "running": conf().running_stale_after}
        form = cls({**usual, **{name: value for name, value in request.GET.items() if name in usual and value}})
        form.use_required_attribute = False
        return form


@require_reader("job", about_instance=True)
def show_stale_attempts(request: HttpRequest) -> HttpResponse:
    """Show live attempts without a heartbeat for longer than the thresholds, longest silence first."""
    form = Thresholds.from_request(request)
    rows: list[Any] = []
    recoveries = []
    if form.is_valid():
        thresholds = form.cleaned_data
        rows = sweep.list_stale_attempts(thresholds["claimed"], thresholds["running"])
        for recovery in MANUAL_RECOVERIES.values():
            older_than = thresholds[recovery.state.lower()]
            count = sweep.count_stale_attempts(older_than).get(recovery.state, 0)
            url = f"{reverse('instance:by_hand', args=[recovery.name])}?older_than={older_than:g}"
            recoveries.append({"recovery": recovery, "count": count, "older_than": f"{older_than:g}", "url": url})
    shown = {
        "title": "Manual recovery",
        "trail": [HOME],
        "filter": form,
        "filters": "recovery",
        "recoveries": recoveries,
        "stale": [{"it": row, "silence": counting_time(row.last_sign_at, "age", row.silence)} for row in rows],
        "may": request.user.has_perm(PERMISSION),
        "sweep": conf().sweep_interval,
        "rows_left_out": rows_left_out(),
    }
    return render_page(request, "recovery", shown)


@require_reader("job", FORM_METHODS, about_instance=True)
def show_manual_recovery(request: HttpRequest, name: str) -> HttpResponse:
    """Show how many attempts the action affects (GET), or perform it with a note (POST)."""
    if name not in MANUAL_RECOVERIES:
        raise Http404(f"There is no recovery action {name}.")
    require_permission(request, PERMISSION)
    recovery = MANUAL_RECOVERIES[name]
    thresholds = Thresholds({"claimed": request.GET.get("older_than"), "running": request.GET.get("older_than")})
    if not thresholds.is_valid():
        messages.error(request, "Enter the number of seconds of silence.")
        return redirect("instance:recovery")
    older_than = thresholds.cleaned_data["running"]
    count = sweep.count_stale_attempts(older_than).get(recovery.state, 0)
    form = NoteForm(request.POST if request.method == "POST" else None)
    problem = ""
    if form.is_valid():
        seen = read_number(request, "seen")
        if count <= seen and count:
            return perform_recovery(request, recovery, older_than, form.cleaned_data["note"])
        problem = f"The page showed {seen:,} attempts, but now there are {count:,}. Check again."
    title = f"{recovery.label}: {count:,} silent for more than {older_than:g} s"
    back = reverse("instance:recovery")
    return render_confirmation(
        request, title, recovery, form, back, problem, noun="attempt", would=count, total=count, seen=count
    )


def perform_recovery(request: HttpRequest, recovery: RecoveryAction, older_than: float, note: str) -> HttpResponse:
    user: Any = request.user
    count = recovery.service(older_than, request_actor(request), note)
    LogEntry.objects.create(
        user_id=user.pk, action_flag=CHANGE, object_repr=f"{count} attempts", change_message=f"{recovery.label}: {note}"
    )
    messages.success(request, f"{recovery.label}: {count:,} attempts.")
    return redirect("instance:recovery")
