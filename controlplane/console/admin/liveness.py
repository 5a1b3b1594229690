"""The tables as they are, to read only: nothing can be changed by hand past the guards. What an operator may do to
servers is on the Instance pages, to which the actions lead."""

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlencode

from django.contrib import admin
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.agent.secret_values import mask
from controlplane.console.actions.bulk_actions import MOST_AT_ONCE
from controlplane.console.actions.servers import SERVER_ACTIONS, OperatorAction
from controlplane.console.views.page import reached_namespaces, within_reach
from liveness.models import ApiToken, Server, ServerEvent
from liveness.selectors.namespaces import reaches_instance

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
