"""Form of *Change…* on a worker: its concurrency and the tags that were given by hand."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from rest_framework import serializers

from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.job_forms import digest
from controlplane.console.actions.log_entries import write_log_entry
from controlplane.console.actions.maintenance import InstanceAction
from controlplane.console.actions.servers import OptionalNoteForm, request_actor
from controlplane.console.actions.trigger_form import describe_problems
from controlplane.console.actions.work_fields import split_tags
from controlplane.console.page import FORM_METHODS, require_permission, require_reader, show_not_found
from controlplane.core.problems import Problem
from controlplane.core.transactions import retried_atomic
from jobs.services import worker_config
from liveness.api.serializers.registration import TagList
from liveness.errors import ChangedSinceSeen
from liveness.models import Server
from liveness.services import operations

CONFIGURE = "liveness.configure_server"
ACTION = InstanceAction(
    "change", "Change", "The worker takes this over with the response to its next heartbeat. Running jobs continue, "
    "also above a lower concurrency. It lasts until the process of its agent ends.", CONFIGURE,
)  # fmt: skip


class WorkerForm(OptionalNoteForm):
    concurrency = forms.IntegerField(min_value=1, max_value=100_000, help_text="Number of jobs that run at once.")
    tags = forms.CharField(required=False)
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    field_order = ("concurrency", "tags", "note")

    def __init__(self, data: Any, *, server: Server) -> None:
        given = worker_config.list_given_tags(server)
        super().__init__(
            data,
            initial={
                "concurrency": server.max_concurrent, "tags": ", ".join(given), "seen": digest(describe(server))
            },
        )  # fmt: skip
        own = sorted({*server.tags} - {*given})
        kept = f" These are added by its agent and stay: {', '.join(own)}." if own else ""
        self.fields["tags"].help_text = f"Separated by commas.{kept}"

    def clean_tags(self) -> Any:
        try:
            return TagList().run_validation(split_tags(self.cleaned_data["tags"]))
        except serializers.ValidationError as wrong:
            raise forms.ValidationError(list(describe_problems(wrong.detail))) from None


def describe(server: Server) -> list[Any]:
    """Return the values that the form shows, to detect changes by another user."""
    return [server.max_concurrent, server.tags]


@require_reader("server", FORM_METHODS)
def change_server(request: HttpRequest, server: UUID) -> HttpResponse:
    """Show and process the form."""
    require_permission(request, CONFIGURE)
    row = Server.objects.filter(pk=server).first()
    if row is None:
        return show_not_found(request, "server")
    form = WorkerForm(request.POST if request.method == "POST" else None, server=row)
    refusal, problem = explain_refusal(row), ""
    if refusal and form.is_bound:
        problem = refusal
    elif not refusal and form.is_valid():
        try:
            store_form(request, row, form)
        except Problem as refused:
            problem = refused.detail
        else:
            messages.success(request, f"Changed: {row.name}. The worker takes it over with its next heartbeat.")
            return redirect("instance:server", server)
    return render_confirmation(
        request, f"Change: {row.name}", ACTION, form, reverse("instance:server", args=[server]), problem,
        tab="servers", button="Change", would=int(not refusal), total=1, refusal=refusal,
    )  # fmt: skip


def explain_refusal(server: Server) -> str:
    """Return why this server cannot be changed, or an empty text."""
    try:
        worker_config.ensure_may_configure(server)
    except Problem as problem:
        return problem.detail
    return ""


@retried_atomic
def store_form(request: HttpRequest, row: Server, form: WorkerForm) -> None:
    """Change the worker, and write an entry to the admin log.

    Raise ChangedSinceSeen if it was changed after the form was opened.
    """
    given, user = form.cleaned_data, request.user
    present = operations.lock_server(row.pk, worker_config.ensure_may_configure)
    if digest(describe(present)) != given["seen"]:
        raise ChangedSinceSeen("The worker was changed after you opened this form. Open the form again.")
    worker_config.configure_worker(
        row.pk, request_actor(request), given["note"], max_concurrent=given["concurrency"], given_tags=given["tags"]
    )
    write_log_entry(user.pk, row, "Changed", given["note"])
