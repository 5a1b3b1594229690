"""Form that kills work: a hold, and the cancellation of all jobs that it covers."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.bulk_actions import BATCH
from controlplane.console.actions.confirmation import read_number, render_confirmation
from controlplane.console.actions.holds import KILL, KillForm
from controlplane.console.actions.jobs import EXECUTION_ACTIONS, JOB_ACTIONS
from controlplane.console.actions.servers import request_actor
from controlplane.console.page import (
    FORM_METHODS,
    HOME,
    reached_namespaces,
    render_page,
    require_permission,
    require_reader,
)
from controlplane.console.views.holds import holding_namespaces, list_namespaces
from controlplane.core.ids import parse_uuid
from jobs.choices import HoldOf
from jobs.models import Batch, Execution
from jobs.selectors.holds import count_jobs_to_kill, list_jobs_to_kill
from jobs.services import batches, holds
from jobs.sql.rows.kill import JobsToKill

NOTHING = JobsToKill(0, 0, None)


@require_reader("job", FORM_METHODS)
def show_kill(request: HttpRequest) -> HttpResponse:
    """Show the form, the preview of its effect, and kill after the confirmation.

    The form is sent twice: first for the preview, then with `until` and `seen` of the preview.
    """
    require_permission(request, KILL.permission)
    require_permission(request, JOB_ACTIONS["cancel"].permission)
    reached = holding_namespaces(request)
    form = KillForm(
        request.POST if request.method == "POST" else None,
        initial={name: request.GET[name] for name in ("kind", "value", "namespace") if name in request.GET},
        namespaces=list_namespaces(reached), reached=reached,
    )  # fmt: skip
    if not form.is_valid():
        shown = {"title": "Kill", "trail": [HOME, ("Holds", "instance:holds")], "form": form, "action": KILL}
        return render_page(request, "kill", {**shown, "tab": "holds"}, lives=False)
    given = form.cleaned_data
    if given["key"] and (sent_before := Batch.objects.filter(key=given["key"]).first()):
        return redirect("instance:batch", sent_before.pk)
    if given["kind"] == HoldOf.EXECUTION:
        require_permission(request, EXECUTION_ACTIONS["cancel"].permission)
    until = parse_uuid(request.POST.get("until"))
    found = find_work(request, given, until)
    if "seen" not in request.POST:
        return show_preview(request, form, found)
    if (now := found.waiting + found.running) > (seen := read_number(request, "seen")):
        return show_preview(request, form, found, f"The preview showed {seen:,} jobs, but now {now:,} match.")
    return kill(request, given, until)


def find_work(request: HttpRequest, given: dict[str, Any], until: UUID | None) -> JobsToKill:
    """Return the jobs that would be cancelled: of a hold of an execution, the execution counts as one."""
    if given["kind"] == HoldOf.EXECUTION:
        open_ones = Execution.objects.filter(pk=given["value"], finished_at=None)
        return NOTHING._replace(running=open_ones.count(), newest=UUID(given["value"]))
    return count_jobs_to_kill(given["kind"], given["value"], given["namespace"], reached_namespaces(request), until)


def show_preview(request: HttpRequest, form: KillForm, found: JobsToKill, problem: str = "") -> HttpResponse:
    """Show what would be held and cancelled, with the form of the confirmation."""
    given = form.cleaned_data
    total = found.waiting + found.running
    return render_confirmation(
        request, f"Kill: {given['kind']} {given['value']}", KILL, form.as_confirmation(), reverse("instance:holds"),
        problem, tab="holds", button=f"Hold and cancel {total:,}" if total else "Hold", would=1, total=1, killed=found,
        until=found.newest, seen=total, most=max(0, total - batches.MOST_ITEMS) and batches.MOST_ITEMS,
    )  # fmt: skip


def kill(request: HttpRequest, given: dict[str, Any], until: UUID | None) -> HttpResponse:
    """Hold the work, and then cancel what waits and runs as a batch."""
    actor = request_actor(request)
    kind = HoldOf(given["kind"])
    held, _ = holds.create_hold(
        kind, given["value"], actor, given["note"], mode=given["mode"], seconds=given["duration"],
        namespace=given["namespace"] or None, key=given["key"] or None,
    )  # fmt: skip
    if kind == HoldOf.EXECUTION:
        operation, ids = EXECUTION_ACTIONS["cancel"].operation, [UUID(given["value"])]
    else:
        operation = JOB_ACTIONS["cancel"].operation
        ids = list_jobs_to_kill(
            kind, given["value"], given["namespace"], reached_namespaces(request), until, batches.MOST_ITEMS
        )
    messages.success(request, f"On hold: {held}.")
    if not ids or until is None:
        return redirect("instance:holds")
    user: Any = request.user
    batch = batches.begin_batch(
        operation, actor, given["note"], {}, [(id, "") for id in ids], label="Kill", chosen=str(held),
        key=given["key"] or None, namespaces=reached_namespaces(request), user_key=str(user.pk),
    )  # fmt: skip
    batches.run_batch(batch, BATCH)
    return redirect("instance:batch", batch)
