"""The tables as they are, to read only (docs: controlplane/console/admin/liveness.py); and triggers, to be managed."""

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

from controlplane.agent.secret_values import mask
from controlplane.console.actions.servers import NoteField, request_actor
from controlplane.console.admin.liveness import ReadOnlyAdmin, mask_fields
from controlplane.console.presenters.jobs import describe_schedule
from controlplane.console.selectors.ids import parse_uuid
from controlplane.console.views.page import reached_namespaces, within_reach
from controlplane.core.problems import Problem
from controlplane.core.rest import NOTE_LENGTH
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
    exclude = ("owner",)
    masked = ("action", "payload")

    @admin.display(description="Instance page")
    def page(self, job: WorkerJob) -> SafeString:
        return format_html('<a href="{}">Show</a>', reverse("instance:job", args=[job.pk]))


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
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
    exclude = ("owner", "fingerprint")
    masked = ("definition", "inputs")


class TriggerForm(forms.ModelForm):
    """A trigger as the API would take it, and why."""

    note = NoteField(max_length=NOTE_LENGTH, required=False, help_text="Why. Kept with who and when.")

    class Meta:
        model = Trigger
        fields = (
            "name", "enabled", "cron", "timezone", "interval_seconds", "missed", "action", "payload", "tags",
            "priority", "timeout_seconds", "max_retries", "execution",
        )  # fmt: skip
        widgets: ClassVar = {name: forms.TextInput(attrs={"size": 40}) for name in ("name", "cron", "timezone", "tags")}
        help_texts: ClassVar = {
            "cron": "Like */5 * * * *. Either this or an interval.",
            "timezone": "Of the cron expression, like Europe/Zurich.",
            "missed": "What happens to slots that passed while nobody evaluated the trigger.",
            "action": 'Its output, like {"fire": true, "inputs": {}}, says whether the execution starts.',
            "tags": "Separated by commas.",
            "execution": 'Like {"name": "x", "steps": [{"key": "a", "action": {"type": "script", "command": "date"}}]}',
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.initial.update({name: mask(self.initial[name]) for name in MASKED if name in self.initial})

    def clean(self) -> dict[str, Any]:
        given = restore_fields(self.cleaned_data, None if self.instance._state.adding else self.instance)
        values = {name: value for name, value in given.items() if value is not None}
        note = values.pop("note", "")
        checked = TriggerRequest(data={**values, "cron": values.get("cron") or None})
        if not self.errors and not checked.is_valid():
            for field, problems in checked.errors.items():
                self.add_error(field if field in self.fields else None, json.dumps(problems, ensure_ascii=False))
        return {**checked.validated_data, "note": note} if not self.errors else values


class SlotInline(admin.TabularInline):
    """What came of its last slots."""

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
    """A form that is sent twice has a trigger evaluated once."""

    note = NoteField(max_length=NOTE_LENGTH, required=False, label="Note:")
    key = forms.CharField(label="", required=False, initial=lambda: str(uuid4()), widget=forms.HiddenInput)


def read_note(request: HttpRequest) -> str:
    """Why, as a form of the admin's own says it; what is no note is none."""
    try:
        note: str = NoteField(max_length=NOTE_LENGTH, required=False).clean(request.POST.get("note"))
    except forms.ValidationError:
        return ""
    return note


@admin.register(Trigger)
class TriggerAdmin(admin.ModelAdmin):
    form = TriggerForm
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

    def get_queryset(self, request: HttpRequest) -> QuerySet[Trigger]:
        return within_reach(request, super().get_queryset(request))

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
