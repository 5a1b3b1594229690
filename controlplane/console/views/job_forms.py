"""Pages of the forms of jobs: *New job…*, *Run again…* and *Edit…*."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.job_forms import (
    ADD,
    EDIT,
    EditJobForm,
    NewJobForm,
    describe_fields,
    may_be_copied,
)
from controlplane.console.actions.servers import request_actor
from controlplane.console.form_page import render_form
from controlplane.console.page import (
    FORM_METHODS,
    HOME,
    reached_namespaces,
    require_permission,
    require_reader,
    show_not_found,
)
from controlplane.console.presenters.jobs import name_job, short_id
from controlplane.console.views.trigger_forms import list_namespaces
from controlplane.core.problems import Problem
from controlplane.core.transactions import retried_atomic
from jobs.models import WorkerJob
from jobs.services import changes, manual_submission
from liveness.errors import ChangedSinceSeen
from liveness.models import Role
from liveness.selectors.namespaces import namespace_of_new
from liveness.services import tokens

JOBS: list[tuple[Any, ...]] = [HOME, ("Jobs", "instance:jobs")]


@require_reader("job", FORM_METHODS)
def add_job(request: HttpRequest) -> HttpResponse:
    """Show and process the form of a new job."""
    require_permission(request, ADD)
    return answer_new(request, None)


@require_reader("job", FORM_METHODS)
def run_job_again(request: HttpRequest, job: UUID) -> HttpResponse:
    """Show and process the form of a copy of a job."""
    require_permission(request, ADD)
    row = WorkerJob.objects.filter(pk=job).first()
    if row is None or not may_be_copied(row):
        return show_not_found(request, "job")
    return answer_new(request, row)


@require_reader("job", FORM_METHODS)
def edit_job(request: HttpRequest, job: UUID) -> HttpResponse:
    """Show and process the form that changes a waiting job."""
    require_permission(request, EDIT)
    row = WorkerJob.objects.filter(pk=job).first()
    if row is None:
        return show_not_found(request, "job")
    form = EditJobForm(request.POST if request.method == "POST" else None, job=row)
    problem: Problem | None = None
    try:
        changes.ensure_may_change(row)
        if form.is_valid():
            store_changes(request, form)
            return redirect("instance:job", job)
    except Problem as refused:
        problem = refused
    return show_form(request, f"Edit job {name_job(row)}", form, row, "Save", problem)


def answer_new(request: HttpRequest, source: WorkerJob | None) -> HttpResponse:
    """Show the form of a new job (GET), or submit the job (POST)."""
    reached = reached_namespaces(request)
    form = NewJobForm(
        request.POST if request.method == "POST" else None,
        initial={"namespace": namespace_of_new(reached)} if source is None else describe_fields(source),
        source=source,
        namespaces=list_namespaces(reached) if source is None else [],
    )
    problem: Problem | None = None
    if form.is_valid():
        try:
            job = submit_form(request, form)
        except Problem as refused:
            problem = refused
        else:
            messages.success(request, f"Submitted: job {short_id(job)}.")
            return redirect("instance:job", job)
    title = "New job" if source is None else f"Run again: {name_job(source)}"
    return show_form(request, title, form, source, "Submit", problem)


@retried_atomic
def submit_form(request: HttpRequest, form: NewJobForm) -> UUID:
    """Submit the job, and write an entry to the admin log. The user owns the job, as with the API."""
    user: Any = request.user
    note, source = form.cleaned_data["note"], form.source
    namespace = form.cleaned_data.get("namespace") or namespace_of_new(reached_namespaces(request))
    job = manual_submission.submit_job(
        tokens.get_session_token(user.pk, user.get_username(), Role.OPERATOR),
        form.job,
        request_actor(request),
        note,
        namespace=namespace if source is None else source.namespace,
        source=source.pk if source else None,
    )
    write_entry(request, job, ADDITION, f"Submitted: {note}")
    return job


@retried_atomic
def store_changes(request: HttpRequest, form: EditJobForm) -> None:
    """Change the job, and write an entry to the admin log.

    Raise ChangedSinceSeen if the job was changed after the form was opened.
    """
    row, note = changes.lock_waiting_job(form.job.pk, None), form.cleaned_data["note"]
    if describe_fields(row)["seen"] != form.cleaned_data["seen"]:
        raise ChangedSinceSeen("The job was changed after you opened this form. Open the form again.")
    changes.change_job(row.pk, request_actor(request), changes=form.changes, note=note, is_limited=False)
    write_entry(request, row.pk, CHANGE, f"Changed: {note}")
    messages.success(request, f"Changed: job {short_id(row.pk)}.")


def write_entry(request: HttpRequest, job: UUID, flag: int, message: str) -> None:
    user: Any = request.user
    row = WorkerJob.objects.get(pk=job)
    LogEntry.objects.log_actions(user.pk, [row], flag, message.rstrip(": "), single_object=True)


def show_form(
    request: HttpRequest, title: str, form: Any, job: WorkerJob | None, button: str, problem: Problem | None
) -> HttpResponse:
    return render_form(
        request, title, form, tab="jobs", button=button, problem=problem,
        trail=JOBS if job is None else [*JOBS, (short_id(job.pk), "instance:job", job.pk)],
        back=reverse("instance:jobs") if job is None else reverse("instance:job", args=[job.pk]),
    )  # fmt: skip
