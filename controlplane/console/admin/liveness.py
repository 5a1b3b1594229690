"""Django admin of servers, events and tokens. All are read-only, because edits would bypass the guards of the services.

Actions on servers open the Instance pages.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.agent.secrets.step_data import mask_payload
from controlplane.console.actions.bulk_actions import MOST_AT_ONCE
from controlplane.console.actions.servers import SERVER_ACTIONS, OperatorAction
from controlplane.console.admin.reach import ReachedRows
from jobs.permissions import VIEWS
from liveness.models import ApiToken, Instance, Server, ServerEvent

Row = TypeVar("Row", bound=models.Model)


def mask_fields(row: Row | None, fields: Iterable[str]) -> Row | None:
    """Mask secrets in these fields of a row. Only show the row afterwards; never save it."""
    for field in fields if row is not None else ():
        setattr(row, field, mask_payload(getattr(row, field), getattr(row, f"{field}_from", None)))
    return row


class ReadOnlyAdmin(ReachedRows):
    """Admin that shows rows and does not add, change or delete them."""

    show_full_result_count = False
    list_per_page = 50
    masked: ClassVar[tuple[str, ...]] = ()
    """JSON fields that may contain secrets."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> models.Model | None:
        return mask_fields(super().get_object(request, object_id, from_field), self.masked)

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return self.is_reached(request) and request.user.has_perm(f"{self.opts.app_label}.view_{self.opts.model_name}")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


def build_page_action(action: OperatorAction) -> Any:
    """Return an admin action that opens the Instance page of this action for the selected servers."""

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
    # Hidden, because a worker token and the instance id are enough to impersonate a server.
    exclude = ("token", "instance_id")

    @admin.display(description="Instance page")
    def page(self, server: Server) -> SafeString:
        return format_html('<a href="{}">Show</a>', reverse("instance:server", args=[server.pk]))

    def has_cordon_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.cordon_server")

    def has_drain_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.drain_server")

    def has_disconnect_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("liveness.disconnect_server")


@admin.register(ServerEvent)
class ServerEventAdmin(ReadOnlyAdmin):
    namespace_path = None  # some events are about tokens, brakes or maintenance
    list_display = ("at", "subject_type", "subject_name", "action", "from_state", "to_state", "actor", "reason")
    list_filter = ("subject_type", "action", "to_state")
    search_fields = ("subject_name", "subject_id")
    ordering: ClassVar = ["-id"]


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Admin of tokens. Commands create and revoke tokens; digests are never shown."""

    fields = (
        "name", "role", "namespace", "prefix", "created_at", "expires_at", "revoked_at", "types", "tags", "cluster",
        "max_servers",
    )  # fmt: skip
    list_display = ("name", "role", "namespace", "prefix", "created_at", "expires_at", "revoked_at")
    list_filter = ("role", "namespace")
    search_fields = ("name", "prefix")


@admin.register(Instance)
class InstancePagesAdmin(ReadOnlyAdmin):
    """Entry on the admin index that leads to the Instance pages. It has no pages of its own."""

    namespace_path = None

    def get_urls(self) -> list[Any]:
        return [
            path("", self.admin_site.admin_view(self.changelist_view), name="liveness_instance_changelist"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied(f"This needs one of the permissions {', '.join(VIEWS.values())}.")
        return redirect("instance:overview")

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return any(map(request.user.has_perm, VIEWS.values()))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)
