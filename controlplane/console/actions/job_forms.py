"""Forms of jobs: a new one, a copy of another one, and changes of one that waits."""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import orjson
from django import forms
from django.urls import reverse

from controlplane.agent.secrets.step_data import mask_payload
from controlplane.agent.secrets.values import mask, restore
from controlplane.console.actions.fields import offer_namespaces
from controlplane.console.actions.servers import OnceForm, OptionalNoteForm
from controlplane.console.actions.trigger_form import describe_problems
from controlplane.console.actions.work_fields import (
    ActionTextField,
    JSONTextField,
    format_action,
    format_json,
    split_tags,
)
from controlplane.core.json_bodies import write_json
from controlplane.core.problems import Problem
from jobs.api.serializers.changes import JobChanges
from jobs.api.serializers.executions import SubmissionRequest
from jobs.models import WorkerJob, named_limits
from jobs.services import changes
from jobs.states import JobKind

ADD, EDIT = "jobs.add_workerjob", "jobs.change_workerjob"
"""Permissions to submit jobs, and to change jobs that wait."""
COPIED = (
    "timeout_seconds", "on_worker_lost", "unmatched", "max_retries", "retry_delay_seconds", "retry_backoff", "retry_on",
    "isolation", "worker_slots", "deadline_seconds", "on_deadline", "notify",
)  # fmt: skip
"""Fields that a copy takes from its job without showing them."""
EDITED = ("payload", "tags", "priority")
"""Fields of a waiting job that the form changes."""
ANY_ACTION = "A shell command, or any action as JSON, like {}."
EXAMPLE = '{"type": "callable", "path": "package.module:function"}'


class WorkForm(OptionalNoteForm):
    """Fields that the forms of jobs share."""

    payload = JSONTextField(required=False, help_text="Payload of the code, as JSON.")
    tags = forms.CharField(required=False, help_text="Tags that a worker must have, separated by commas.")
    priority = forms.IntegerField(initial=0, help_text="Higher ones are claimed first.")

    def clean_tags(self) -> list[str]:
        return split_tags(self.cleaned_data["tags"])

    def add_problems(self, errors: Any, names: dict[str, str]) -> None:
        """Add the errors of a request. `names` are the fields of the form, by field of the API."""
        for field, problems in errors.items():
            name = names.get(field, field)
            self.add_error(name if name in self.fields else None, list(describe_problems(problems)))


class NewJobForm(WorkForm, OnceForm):
    """Form of a new job, or of a copy of `source`. If it is valid, `job` is the job to submit."""

    name = forms.CharField(max_length=200, required=False, help_text="Name for people. Default: its action.")
    namespace = forms.ChoiceField(help_text="Only workers of this namespace run it.")
    command = ActionTextField(help_text=ANY_ACTION.format(EXAMPLE))

    field_order = ("name", "namespace", "command", "payload", "tags", "priority", "note")

    def __init__(
        self, *args: Any, source: WorkerJob | None = None, namespaces: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.source = source
        self.job: dict[str, Any] = {}
        offer_namespaces(self, namespaces)

    def clean(self) -> dict[str, Any]:
        values = self.cleaned_data
        if self.errors:
            return values
        source, action, payload = self.source, values["command"], values["payload"]
        copied: dict[str, Any] = {}
        if source is not None:
            copied = {name: value for name in COPIED if (value := getattr(source, name)) is not None}
            if limits := named_limits(source.limits):  # rules add the others again
                copied["limits"] = limits
            action, payload = restore(action, source.action), restore(payload, source.payload)
        job = {**copied, "action": action, "tags": values["tags"], "priority": values["priority"]}
        job |= {"name": values["name"]} if values["name"] else {}
        job |= {} if payload is None else {"payload": payload}
        request = SubmissionRequest(data=job)
        if request.is_valid():
            self.job = {**request.validated_data, **self.describe_key(job)}
        self.add_problems(request.errors, {"action": "command"})
        return values

    def describe_key(self, job: dict[str, Any]) -> dict[str, str]:
        """Return the idempotency key: the same form sent twice submits one job, a changed form another one."""
        key = self.cleaned_data["key"]
        return {"key": str(uuid5(NAMESPACE_OID, key + digest(job)))} if key else {}


class EditJobForm(WorkForm):
    """Form of a job that waits. If it is valid, `changes` are the values to store."""

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, job: WorkerJob, **options: Any) -> None:
        super().__init__(*args, initial=describe_fields(job), **options)
        self.job = job
        self.changes: dict[str, Any] = {}
        if job.payload_from:  # values of other steps, which the form cannot show
            del self.fields["payload"]
        else:
            self.fields["payload"].help_text = "Payload of the code, as JSON. A new one deletes the checkpoint."

    def clean(self) -> dict[str, Any]:
        values = self.cleaned_data
        if self.errors:
            return values
        changes = {name: values[name] for name in EDITED if name in self.fields}
        if "payload" in changes:
            changes["payload"] = restore(changes["payload"], self.job.payload)
        request = JobChanges(data=changes)
        if request.is_valid():
            self.changes = dict(request.validated_data)
        self.add_problems(request.errors, {})
        return values


def may_be_copied(job: WorkerJob) -> bool:
    """Return True if the job can be submitted again by itself: it is no step, no evaluation and no Celery task."""
    return job.kind == JobKind.TASK and job.execution_id is None


AGAIN = "Submits a copy of this job, which you may change first. This job does not change."


def list_job_forms(user: Any, job: Any) -> list[tuple[str, str, str]]:
    """Return (label, address, effect) of the forms that the user may open for a job."""
    forms = []
    if may_be_copied(job) and user.has_perm(ADD):
        forms.append(("Run again", reverse("instance:job_again", args=[job.pk]), AGAIN))
    if user.has_perm(EDIT):
        with suppress(Problem):
            changes.ensure_may_change(job)
            forms.append(("Edit", reverse("instance:job_edit", args=[job.pk]), "Changes this job while it waits."))
    return forms


def describe_fields(job: WorkerJob) -> dict[str, Any]:
    """Return the initial values of the form for a job, with secrets masked."""
    return {
        "name": job.name,
        "command": format_action(mask(job.action)),
        "payload": "" if job.payload is None else format_json(mask_payload(job.payload, job.payload_from)),
        "tags": ", ".join(job.tags),
        "priority": job.priority,
        "seen": digest({name: getattr(job, name) for name in EDITED}),
    }


def digest(value: Any) -> str:
    """Return a hash of a value, to compare it with an earlier one."""
    return sha256(write_json(value, orjson.OPT_SORT_KEYS)).hexdigest()
