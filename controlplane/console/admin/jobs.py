"""Django admin of jobs, attempts and executions (read-only) and of triggers (editable)."""

import json
from typing import Any, ClassVar
from uuid import uuid4

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db.models import OuterRef, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.agent.secrets.values import mask
from controlplane.console.actions.servers import NoteFormField, request_actor
from controlplane.console.admin.liveness import ReadOnlyAdmin, mask_fields
from controlplane.console.admin.reach import ReachedRows
from controlplane.console.page import reached_namespaces
from controlplane.console.presenters.jobs import describe_schedule
from controlplane.core.bounds import NOTE_LENGTH
from controlplane.core.ids import parse_uuid
from controlplane.core.problems import Problem
from jobs.api.serializers.notify import hide_addresses
from jobs.api.serializers.triggers import MASKED, TriggerRequest, restore_fields
from jobs.models import Attempt, Execution, Trigger, TriggerSlot, WorkerJob
from jobs.selectors.triggers import SLOTS_SHOWN
from jobs.services import triggers
from liveness.selectors.namespaces import namespace_of_new


@admin.register(WorkerJob)
class WorkerJobAdmin(ReadOnlyAdmin):
    list_display = ("id", "state", "kind", "attempt_count", "resubmissions", "created_at", "finished_at", "page")
    list_filter = ("state", "kind")
    search_fields = ("id", "key")
    ordering: ClassVar = ["-id"]
    exclude = ("owner", "notify")
    masked = ("action", "payload", "definition")

    def get_object(self, *args: Any, **options: Any) -> Any:
        return hide_definition(super().get_object(*args, **options))

    @admin.display(description="Instance page")
    def page(self, job: WorkerJob) -> SafeString:
        return format_html('<a href="{}">Show</a>', reverse("instance:job", args=[job.pk]))


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    namespace_path = "job__namespace"
    list_display = ("id", "job_id", "number", "server", "state", "claimed_at", "started_at", "finished_at", "reason")
    list_filter = ("state",)
    list_select_related = ("server",)
    search_fields = ("id", "job__id")
    ordering: ClassVar = ["-id"]


@admin.register(Execution)
class ExecutionAdmin(ReadOnlyAdmin):
    list_display = ("id", "name", "state", "trigger", "open_steps", "created_at", "finished_at")
    list_filter = ("state",)
    list_select_related = ("trigger",)
    search_fields = ("id", "name", "key")
    ordering: ClassVar = ["-id"]
    exclude = ("owner", "fingerprint", "notify")
    masked = ("definition", "inputs")

    def get_object(self, *args: Any, **options: Any) -> Any:
        return hide_definition(super().get_object(*args, **options))


def hide_definition(row: Any) -> Any:
    """Hide the addresses of receivers in the definition of a row. Only show the row afterwards; never save it."""
    if row is not None and row.definition:
        row.definition = hide_addresses(row.definition)
    return row


EMPTIED = (
    "cron", "interval_seconds", "on_signal", "start_at", "end_at", "pause_after_failures", "action", "payload",
)  # fmt: skip
"""Fields of a trigger that are null if they are left empty."""


class TriggerAdminForm(forms.ModelForm):
    """Trigger form with the checks of the API, and a note."""

    note = NoteFormField(
        max_length=NOTE_LENGTH, required=False, help_text="Reason. Stored with your name and the time."
    )
    namespace: str
    """Namespace of the trigger. The form does not show it."""

    class Meta:
        model = Trigger
        fields = (
            "name", "enabled", "cron", "timezone", "interval_seconds", "on_signal", "start_at", "end_at",
            "jitter_seconds", "missed", "overlap", "pause_after_failures", "action", "payload", "tags", "priority",
            "worker_slots", "timeout_seconds", "max_retries", "execution",
        )  # fmt: skip
        widgets: ClassVar = {name: forms.TextInput(attrs={"size": 40}) for name in ("name", "cron", "timezone", "tags")}
        help_texts: ClassVar = {
            "cron": "Like */5 * * * *. Set either this or an interval.",
            "timezone": "Time zone of the cron expression, like Europe/Zurich.",
            "missed": "What happens to slots that passed without an evaluation.",
            "overlap": "What happens to a slot while an earlier execution of the trigger runs.",
            "pause_after_failures": "Number of FAILED executions in a row that pauses the trigger. Empty: never.",
            "action": 'Its output, like {"fire": true, "inputs": {}}, decides whether the execution starts. Without an '
            "action it starts at once.",
            "tags": "Tags separated by commas.",
            "execution": 'Like {"name": "x", "steps": [{"key": "a", "action": {"type": "script", "command": "date"}}]}',
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.initial.update({name: mask(self.initial[name]) for name in MASKED if name in self.initial})
        for name in self.fields.keys() & {"jitter_seconds", "overlap", "worker_slots"}:
            self.fields[name].required = False  # without a value it stays as it is

    def clean(self) -> dict[str, Any]:
        given = restore_fields(self.cleaned_data, None if self.instance._state.adding else self.instance)
        values = {name: value for name, value in given.items() if value not in (None, "")}
        note = values.pop("note", "")
        times = {name: values[name].isoformat() for name in ("start_at", "end_at") if name in values}
        others = Trigger.objects.filter(namespace=self.namespace, name=given.get("name")).exclude(pk=self.instance.pk)
        if others.exists():
            self.add_error("name", "Another trigger of this namespace has this name. Choose another name.")
        checked = TriggerRequest(data={**dict.fromkeys(EMPTIED), **values, **times})
        if not self.errors and not checked.is_valid():
            for field, problems in checked.errors.items():
                self.add_error(field if field in self.fields else None, json.dumps(problems, ensure_ascii=False))
        return {**checked.validated_data, "note": note} if not self.errors else values


class SlotInline(admin.TabularInline):
    """Table of the last slots of a trigger, with their outcomes."""

    model = TriggerSlot
    fields = readonly_fields = ("slot", "outcome", "by", "note", "execution")
    ordering: ClassVar = ["-slot"]
    can_delete = False
    max_num = 0

    def get_queryset(self, request: HttpRequest) -> QuerySet[TriggerSlot]:
        last = TriggerSlot.objects.filter(trigger=OuterRef("trigger")).order_by("-slot").values("pk")[:SLOTS_SHOWN]
        return super().get_queryset(request).filter(pk__in=last)

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return True


class OnceActionForm(ActionForm):
    """Action form with a key, so that a form sent twice evaluates a trigger only once."""

    note = NoteFormField(max_length=NOTE_LENGTH, required=False, label="Note:")
    key = forms.CharField(label="", required=False, initial=lambda: str(uuid4()), widget=forms.HiddenInput)


def read_note(request: HttpRequest) -> str:
    """Return the note of an admin form, or an empty text if it is invalid."""
    try:
        note: str = NoteFormField(max_length=NOTE_LENGTH, required=False).clean(request.POST.get("note"))
    except forms.ValidationError:
        return ""
    return note


@admin.register(Trigger)
class TriggerAdmin(ReachedRows):
    form = TriggerAdminForm
    action_form = OnceActionForm
    list_display = ("name", "enabled", "schedule", "timezone", "missed", "next_slot_at")
    list_filter = ("enabled",)
    search_fields = ("name",)
    ordering: ClassVar = ["name"]
    readonly_fields = ("next_slot_at",)
    actions = ["evaluate_now"]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Trigger | None:
        trigger = super().get_object(request, object_id, from_field)
        return trigger if self.has_change_permission(request, trigger) else mask_fields(trigger, MASKED)

    def get_form(self, request: HttpRequest, obj: Trigger | None = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form. It checks that no other trigger in the namespace of this one has the same name."""
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.namespace = obj.namespace if obj else namespace_of_new(reached_namespaces(request))
        return form

    def get_inlines(self, request: HttpRequest, obj: object) -> list[Any]:
        return [] if obj is None else [SlotInline]

    def save_model(self, request: HttpRequest, trigger: Trigger, form: forms.ModelForm, change: bool) -> None:
        if not change:
            trigger.namespace = namespace_of_new(reached_namespaces(request))
        triggers.store_trigger(trigger, request_actor(request), form.cleaned_data["note"])

    def delete_model(self, request: HttpRequest, trigger: Trigger) -> None:
        triggers.delete_trigger(trigger.pk, request_actor(request), read_note(request))

    def delete_queryset(self, request: HttpRequest, chosen: QuerySet[Trigger]) -> None:
        for trigger in chosen:
            self.delete_model(request, trigger)

    @admin.display(description="Schedule")
    def schedule(self, trigger: Trigger) -> str:
        return describe_schedule(trigger)

    @admin.action(description="Evaluate now", permissions=["evaluate"])
    def evaluate_now(self, request: HttpRequest, chosen: QuerySet[Trigger]) -> None:
        key = parse_uuid(request.POST.get("key"))
        for trigger in chosen:
            try:
                triggers.evaluate_trigger(
                    trigger.pk, request_actor(request), str(key) if key else None, note=read_note(request)
                )
            except Problem as problem:
                self.message_user(request, f"{trigger}: {problem.detail}", messages.ERROR)
            else:
                self.log_change(request, trigger, "Evaluated by hand.")
                self.message_user(request, f"{trigger} is being evaluated.")

    def has_evaluate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobs.evaluate_trigger")
