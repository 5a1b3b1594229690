"""The tables as they are, to read only: nothing can be changed by hand past the guards. What an operator may do to
servers is on the Instance pages, to which the actions lead; maintenance and the brake have their page here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.agent.secret_values import mask
from controlplane.console.actions.bulk_actions import MOST_AT_ONCE
from controlplane.console.actions.servers import SERVER_ACTIONS, NoteForm, OperatorAction, request_actor
from controlplane.console.views.page import reached_namespaces, require_instance, within_reach
from controlplane.core.database import transaction
from controlplane.core.problems import Problem
from liveness.models import ApiToken, Brake, Instance, Server, ServerEvent
from liveness.selectors import reaches_instance
from liveness.services import operations

Row = TypeVar("Row", bound=models.Model)


def mask_fields(row: Row | None, fields: Iterable[str]) -> Row | None:
    """A row that is only to be shown."""
    for field in fields if row is not None else ():
        setattr(row, field, mask(getattr(row, field)))
    return row


class ReadOnlyAdmin(admin.ModelAdmin):
    """Shows rows; neither adds, changes nor deletes any."""

    show_full_result_count = False
    list_per_page = 50
    masked: ClassVar[tuple[str, ...]] = ()
    """Fields of JSON that may have secrets in them."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> models.Model | None:
        return mask_fields(super().get_object(request, object_id, from_field), self.masked)

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        may_view = request.user.has_perm(f"{self.opts.app_label}.view_{self.opts.model_name}")
        return may_view and (self.is_of_namespaces or reaches_instance(reached_namespaces(request)))

    @property
    def is_of_namespaces(self) -> bool:
        return any(field.name == "namespace" for field in self.opts.fields)

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        rows = super().get_queryset(request)
        return within_reach(request, rows) if self.is_of_namespaces else rows

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


def build_page_action(action: OperatorAction) -> Any:
    """An action on a selection: the page of the Instance that shows what it would do."""

    def redirect_to_page(
        model: admin.ModelAdmin, request: HttpRequest, servers: models.QuerySet[Server]
    ) -> HttpResponse:
        chosen = list(servers.values_list("pk", flat=True)[: MOST_AT_ONCE + 1])
        return redirect(f"{reverse(f'instance:servers_{action.name}')}?{urlencode({'pick': chosen}, doseq=True)}")

    redirect_to_page.__name__ = action.name
    _, _, permission = action.permission.partition(".")
    return admin.action(
        redirect_to_page, permissions=[permission.removesuffix("_server")], description=f"{action.label}…"
    )


@admin.register(Server)
class ServerAdmin(ReadOnlyAdmin):
    actions = tuple(map(build_page_action, SERVER_ACTIONS.values()))
    list_display = (
        "name", "type", "state", "cordoned_by", "drain_deadline", "cluster", "last_heartbeat_at", "created_at", "page",
    )  # fmt: skip
    list_filter = ("state", "type")
    search_fields = ("name", "hostname", "id")
    ordering: ClassVar = ["-id"]
    exclude = ("token", "instance_id")  # with a worker token, an instance id takes a server's place

    @admin.display(description="Instance page")
    def page(self, server: Server) -> SafeString:
        return format_html('<a href="{}">Show</a>', reverse("instance:server", args=[server.pk]))

    def has_cordon_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.cordon_server")

    def has_drain_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.drain_server")

    def has_disconnect_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.disconnect_server")


def render_confirmation(
    model: ReadOnlyAdmin, request: HttpRequest, form: forms.Form, shown: dict[str, Any]
) -> TemplateResponse:
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
class InstanceAction:
    """What an operator may do to the whole control plane."""

    label: str
    then: str
    permission: str
    service: Callable[[str, str], Any]
    guard: Callable[[Any], None]
    subject: Callable[[], Any]
    """What the guard judges."""

    def applies_now(self) -> bool:
        try:
            self.guard(self.subject())
        except Problem:
            return False
        return True


def engaged_brakes() -> list[Brake]:
    return list(Brake.objects.filter(released_by=None))


INSTANCE_ACTIONS = {
    "enter": InstanceAction(
        "Enter maintenance",
        "Nobody gets new work. Running work finishes, submissions queue.",
        "liveness.change_maintenance",
        operations.enter_maintenance,
        operations.ensure_may_enter_maintenance,
        Instance.objects.get,
    ),
    "exit": InstanceAction(
        "Exit maintenance",
        "Work is given out again.",
        "liveness.change_maintenance",
        operations.exit_maintenance,
        operations.ensure_may_exit_maintenance,
        Instance.objects.get,
    ),
    "release": InstanceAction(
        "Release the brake",
        "The silent servers that it holds are disconnected by the next liveness check.",
        "liveness.release_brake",
        operations.release_brake,
        operations.ensure_may_release_brake,
        engaged_brakes,
    ),
}


@admin.register(Instance)
class InstanceAdmin(ReadOnlyAdmin):
    """One page for the one row: maintenance and the brake."""

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        may_act = any(request.user.has_perm(action.permission) for action in INSTANCE_ACTIONS.values())
        return may_act and reaches_instance(reached_namespaces(request))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        steps = [
            path(
                f"{name}/", self.admin_site.admin_view(self.confirm_action), {"name": name}, f"liveness_instance_{name}"
            )
            for name in INSTANCE_ACTIONS
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
            "offered": [
                name
                for name, action in INSTANCE_ACTIONS.items()
                if request.user.has_perm(action.permission) and action.applies_now()
            ],
        }
        return TemplateResponse(request, "admin/liveness/instance.html", context)

    def confirm_action(self, request: HttpRequest, name: str) -> HttpResponse:
        """Show what would happen; once confirmed with a note, do it."""
        action = INSTANCE_ACTIONS[name]
        if not request.user.has_perm(action.permission):
            raise PermissionDenied(f"This needs the permission {action.permission}.")
        require_instance(request)
        form = NoteForm(request.POST if request.method == "POST" else None)
        if not form.is_valid():
            return render_confirmation(
                self, request, form, {"title": action.label, "label": action.label, "then": action.then}
            )
        try:
            with transaction.atomic():
                action.service(request_actor(request), form.cleaned_data["note"])
                self.log_change(request, Instance.objects.get(), f"{action.label}: {form.cleaned_data['note']}")
        except Problem as problem:
            messages.error(request, problem.detail)
        else:
            messages.success(request, f"{action.label}: done.")
        return redirect("admin:liveness_instance_changelist")


@admin.register(ServerEvent)
class ServerEventAdmin(ReadOnlyAdmin):
    list_display = ("at", "subject_type", "subject_name", "action", "from_state", "to_state", "actor", "reason")
    list_filter = ("subject_type", "action", "to_state")
    search_fields = ("subject_name", "subject_id")
    ordering: ClassVar = ["-id"]


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Tokens are made and revoked by commands; their digests are shown nowhere."""

    fields = (
        "name", "role", "namespace", "prefix", "created_at", "expires_at", "revoked_at", "types", "tags", "cluster",
        "max_servers",
    )  # fmt: skip
    list_display = ("name", "role", "namespace", "prefix", "created_at", "expires_at", "revoked_at")
    list_filter = ("role", "namespace")
    search_fields = ("name", "prefix")
