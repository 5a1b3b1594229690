"""Form of *Retry failed steps…* on an execution."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.jobs import EXECUTION_ACTIONS
from controlplane.console.actions.log_entries import write_log_entry
from controlplane.console.actions.retry_form import RetryForm
from controlplane.console.actions.servers import request_actor
from controlplane.console.page import FORM_METHODS, require_permission, require_reader, show_not_found
from controlplane.core.problems import Problem
from controlplane.core.transactions import retried_atomic
from jobs.errors import ImpossibleChange
from jobs.models import Execution
from jobs.services.operator_actions import restart_execution

ACTION = EXECUTION_ACTIONS["restart"]


@require_reader("execution", FORM_METHODS)
def retry_execution(request: HttpRequest, execution: UUID) -> HttpResponse:
    """Show the form that begins an execution again where it failed, or begin it."""
    require_permission(request, ACTION.permission)
    row = Execution.objects.filter(pk=execution).first()
    if row is None:
        return show_not_found(request, "execution")
    refusal = ACTION.refusal_reason(row)
    form = RetryForm(request.POST if request.method == "POST" else None, execution=row)
    problem = refusal if refusal and form.is_bound else ""
    if not refusal and form.is_valid():
        try:
            begun = begin_again(request, row, form)
        except ImpossibleChange as refused:
            form.add_error(None, refused.detail)
        except Problem as refused:
            problem = refused.detail
        else:
            messages.success(request, f"Started: execution {row.name}, from where it failed.")
            return redirect("instance:execution", begun)
    return render_confirmation(
        request, f"{ACTION.label}: {row.name}", ACTION, form, reverse("instance:execution", args=[execution]),
        problem, tab="executions", button=ACTION.label, would=int(not refusal), total=1, refusal=refusal,
    )  # fmt: skip


@retried_atomic
def begin_again(request: HttpRequest, row: Execution, form: RetryForm) -> UUID:
    """Begin the new execution, and write an entry to the admin log."""
    user: Any = request.user
    begun = restart_execution(row.pk, request_actor(request), key=form.cleaned_data["key"], **form.options)
    write_log_entry(user.pk, row, ACTION.label, form.cleaned_data["note"])
    return begun
