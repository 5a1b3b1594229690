"""The tables as they are, to read only: nothing can be changed by hand past the guards. What an operator may do goes
through liveness/services/operations.py, with a note and after a look at what would happen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db import models, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.durations import seconds
from controlplane.problems import Problem
from liveness.errors import ChangedSinceSeen, NoSuchServer
from liveness.models import ApiToken, Brake, Instance, Server, ServerEvent
from liveness.services import operations

admin.site.site_header = admin.site.site_title = "Control plane"
admin.site.index_title = "Administration"
admin.site.site_url = None


class ReadOnly(admin.ModelAdmin):
    """Shows rows; neither adds, changes nor deletes any."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class NoteForm(forms.Form):
    note = forms.CharField(
        max_length=1000, widget=forms.Textarea(attrs={"rows": 3, "cols": 60}), help_text="Why. Kept with who and when."
    )


class DrainForm(NoteForm):
    deadline = forms.CharField(required=False, help_text="45s, 5m, 24h; the grace period of each unless given.")

    def clean_deadline(self) -> float | None:
        try:
            return seconds(self.cleaned_data["deadline"] or None)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


@dataclass(frozen=True)
class Operation:
    """What an operator may do to a server: in a word, in a sentence, and as a service."""

    label: str
    then: str
    act: Callable[..., None]
    may: Callable[[Server], None]
    form: type[NoteForm] = NoteForm

    def outlook(self, server: Server) -> str:
        """What would happen to a server, or why nothing would."""
        try:
            self.may(server)
        except Problem as problem:
            return f"Nothing: {problem.detail}"
        return self.then


OPERATIONS = {
    "cordon": Operation(
        "Cordon", "It gets no new work. What it holds goes on.", operations.cordon, operations.may_cordon
    ),
    "uncordon": Operation("Uncordon", "It gets work again.", operations.uncordon, operations.may_uncordon),
    "drain": Operation(
        "Drain",
        "It gets no new work, and until the deadline to finish what it holds. Then it gives back the rest.",
        operations.drain,
        operations.may_drain,
        DrainForm,
    ),
    "undrain": Operation(
        "Undrain", "It gets work again: drain and cordon are lifted.", operations.undrain, operations.may_undrain
    ),
    "disconnect": Operation(
        "Disconnect",
        "It counts as lost and is told to end. Jobs that have not begun move at once, running ones by its restart "
        "strategy.",
        operations.disconnect,
        operations.may_disconnect,
    ),
}
AT_ONCE = 400  # a page that confirms more would exceed DATA_UPLOAD_MAX_NUMBER_FIELDS


def actor(request: HttpRequest) -> str:
    return operations.actor(request.user.get_username())


@admin.register(Server)
class ServerAdmin(ReadOnly):
    actions = tuple(OPERATIONS)
    list_display = (
        "name", "type", "state", "cordoned_by", "drain_deadline", "cluster", "last_heartbeat_at", "created_at", "page",
    )  # fmt: skip
    list_filter = ("state", "type")
    search_fields = ("name", "hostname", "id")
    ordering: ClassVar = ["-id"]
    exclude = ("token",)

    @admin.display(description="Instance page")
    def page(self, server: Server) -> SafeString:
        return format_html('<a href="{}">Show</a>', reverse("instance:server", args=[server.pk]))

    def has_cordon_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.cordon_server")

    def has_drain_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.drain_server")

    def has_disconnect_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.disconnect_server")

    @admin.action(permissions=["cordon"], description="Cordon: no new work")
    def cordon(self, request: HttpRequest, servers: models.QuerySet[Server]) -> HttpResponse | None:
        return self.operate(request, servers, "cordon")

    @admin.action(permissions=["cordon"], description="Uncordon")
    def uncordon(self, request: HttpRequest, servers: models.QuerySet[Server]) -> HttpResponse | None:
        return self.operate(request, servers, "uncordon")

    @admin.action(permissions=["drain"], description="Drain: no new work, and a deadline for the rest")
    def drain(self, request: HttpRequest, servers: models.QuerySet[Server]) -> HttpResponse | None:
        return self.operate(request, servers, "drain")

    @admin.action(permissions=["drain"], description="Undrain")
    def undrain(self, request: HttpRequest, servers: models.QuerySet[Server]) -> HttpResponse | None:
        return self.operate(request, servers, "undrain")

    @admin.action(permissions=["disconnect"], description="Disconnect: count as lost")
    def disconnect(self, request: HttpRequest, servers: models.QuerySet[Server]) -> HttpResponse | None:
        return self.operate(request, servers, "disconnect")

    def operate(self, request: HttpRequest, servers: models.QuerySet[Server], name: str) -> HttpResponse | None:
        """Show what would happen; once confirmed with a note, do it to each server for itself."""
        operation = OPERATIONS[name]
        form = operation.form(request.POST if "confirmed" in request.POST else None)
        if form.is_valid():
            for seen in request.POST.getlist("seen"):
                self.operate_on(request, name, seen, **form.cleaned_data)
            return None
        chosen = list(servers[: AT_ONCE + 1])
        if len(chosen) > AT_ONCE:
            messages.error(request, f"At most {AT_ONCE} servers at once.")
            return None
        shown = {
            "title": f"{operation.label} {len(chosen)} server{'s' if len(chosen) > 1 else ''}",
            "label": operation.label,
            "rows": [(server, operation.outlook(server)) for server in chosen],
            "action": name,
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return confirmation(self, request, form, shown)

    def operate_on(self, request: HttpRequest, name: str, seen: str, note: str, **more: Any) -> None:
        """One server, if it still is in the state in which it was seen."""
        pk, _, state = seen.partition(" ")
        try:
            with transaction.atomic():
                server = Server.objects.select_for_update(no_key=True).filter(pk=pk).first()
                if server is None:
                    raise NoSuchServer
                if server.state != state:
                    raise ChangedSinceSeen(f"It was {state} when you looked and is {server.state} now: look again.")
                OPERATIONS[name].act(server.pk, actor(request), note, **more)
                self.log_change(request, server, f"{OPERATIONS[name].label}: {note}")
        except Problem as problem:
            messages.error(request, f"Server {pk if server is None else server.name}: {problem.detail}")
        else:
            messages.success(request, f"Server {server.name}: {OPERATIONS[name].label.lower()} is done.")


def confirmation(model: ReadOnly, request: HttpRequest, form: forms.Form, shown: dict[str, Any]) -> TemplateResponse:
    """The page between the wish and the deed."""
    context = {
        **model.admin_site.each_context(request),
        "opts": model.opts,
        "back": reverse(f"admin:{model.opts.app_label}_{model.opts.model_name}_changelist"),
        "form": form,
        **shown,
    }
    return TemplateResponse(request, "admin/liveness/confirm.html", context)


@dataclass(frozen=True)
class Step:
    """What an operator may do to the whole control plane."""

    label: str
    then: str
    permission: str
    act: Callable[[str, str], Any]


STEPS = {
    "enter": Step(
        "Enter maintenance",
        "Nobody gets new work. Running work finishes, submissions queue.",
        "liveness.change_maintenance",
        operations.enter_maintenance,
    ),
    "exit": Step(
        "Exit maintenance", "Work is given out again.", "liveness.change_maintenance", operations.exit_maintenance
    ),
    "release": Step(
        "Release the brake",
        "The silent servers that it holds are disconnected by the next liveness check.",
        "liveness.release_brake",
        operations.release_brake,
    ),
}


@admin.register(Instance)
class InstanceAdmin(ReadOnly):
    """One page for the one row: maintenance and the brake."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return any(request.user.has_perm(step.permission) for step in STEPS.values())

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        steps = [
            path(f"{name}/", self.admin_site.admin_view(self.step), {"name": name}, f"liveness_instance_{name}")
            for name in STEPS
        ]
        return steps + super().get_urls()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Maintenance and brake",
            "opts": self.opts,
            "instance": Instance.objects.get(),
            "brakes": Brake.objects.order_by("type"),
            "engaged": Brake.objects.filter(released_by=None).exists(),
        }
        return TemplateResponse(request, "admin/liveness/instance.html", context)

    def step(self, request: HttpRequest, name: str) -> HttpResponse:
        """Show what would happen; once confirmed with a note, do it."""
        step = STEPS[name]
        if not request.user.has_perm(step.permission):
            raise PermissionDenied(f"This needs the permission {step.permission}.")
        form = NoteForm(request.POST if request.method == "POST" else None)
        if not form.is_valid():
            return confirmation(self, request, form, {"title": step.label, "label": step.label, "then": step.then})
        try:
            with transaction.atomic():
                step.act(actor(request), form.cleaned_data["note"])
                self.log_change(request, Instance.objects.get(), f"{step.label}: {form.cleaned_data['note']}")
        except Problem as problem:
            messages.error(request, problem.detail)
        else:
            messages.success(request, f"{step.label}: done.")
        return redirect("admin:liveness_instance_changelist")


@admin.register(ServerEvent)
class ServerEventAdmin(ReadOnly):
    list_display = ("at", "server_name", "action", "from_state", "to_state", "actor", "reason")
    list_filter = ("action", "to_state")
    search_fields = ("server_name", "server_id")
    ordering: ClassVar = ["-id"]


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnly):
    """Tokens are made and revoked by commands; their digests are shown nowhere."""

    fields = ("name", "role", "prefix", "created_at", "expires_at", "revoked_at")
    list_display = ("name", "role", "prefix", "created_at", "expires_at", "revoked_at")
    list_filter = ("role",)
    search_fields = ("name", "prefix")
