"""Page *Answers*: the steps that wait for an answer of a person, and the form that answers one."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.console.actions.answer_form import PERMISSION, AnswerForm
from controlplane.console.actions.log_entries import write_log_entry
from controlplane.console.actions.servers import request_actor
from controlplane.console.formatting import time_since
from controlplane.console.page import (
    FORM_METHODS,
    HOME,
    render_page,
    require_permission,
    require_reader,
    show_not_found,
    within_reach,
)
from controlplane.console.presenters.jobs import present_answer
from controlplane.core.database import transaction
from controlplane.core.problems import Problem
from jobs.selectors.answers import waiting_answers
from jobs.selectors.jobs import jobs_without_content
from jobs.services import approvals

ANSWERS_SHOWN = 200


@require_reader("execution")
def show_answers(request: HttpRequest) -> HttpResponse:
    """Show the steps that wait for an answer, those that wait longest first."""
    rows = list(within_reach(request, waiting_answers())[: ANSWERS_SHOWN + 1])
    shown = {
        "title": "Answers",
        "trail": [HOME],
        "rows": [present_answer(row) for row in rows[:ANSWERS_SHOWN]],
        "more": len(rows) > ANSWERS_SHOWN and ANSWERS_SHOWN,
        "may_answer": request.user.has_perm(PERMISSION),
    }
    return render_page(request, "answers", shown)


@require_reader("execution", FORM_METHODS)
def answer_job(request: HttpRequest, job: UUID) -> HttpResponse:
    """Show and process the form that answers a step."""
    require_permission(request, PERMISSION)
    row: Any = jobs_without_content().select_related("execution").filter(pk=job, action__type="approval").first()
    if row is None:
        return show_not_found(request, "answer")
    wait = row.waiting_for
    form = AnswerForm(request.POST if request.method == "POST" else None, wait) if wait else None
    problem = ""
    try:
        approvals.ensure_may_answer(row, approvals.groups_of(request.user))
        if form is not None and form.is_valid():
            store_answer(request, row, form)
            return redirect("instance:answers")
    except Problem as refused:
        problem, form = refused.detail, None
    shown = {
        "title": f"Answer {row.step}",
        "trail": [HOME, ("Answers", "instance:answers")],
        "it": row,
        "wait": wait,
        "since": time_since(row.available_at, row.now),
        "form": form,
        "problem": problem,
    }
    return render_page(request, "answer", shown, status=409 if problem else 200, lives=False)


def store_answer(request: HttpRequest, row: Any, form: AnswerForm) -> None:
    """Answer the step, and write an entry to the admin log."""
    user: Any = request.user
    choice, note = form.cleaned_data["choice"], form.cleaned_data["note"]
    with transaction.atomic():
        groups = approvals.groups_of(user)
        approvals.answer_step(row.pk, choice, form.values, by=request_actor(request), groups=groups, note=note)
        write_log_entry(user.pk, row, f"Answered {choice}", note)
    messages.success(request, f"Answered: {row.step} {choice}.")
