"""The tables as they are, to read only: nothing can be changed by hand past the guards."""

from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from liveness.models import ApiToken, Server, ServerEvent

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


@admin.register(Server)
class ServerAdmin(ReadOnly):
    list_display = ("name", "type", "state", "cluster", "last_heartbeat_at", "created_at", "page")
    list_filter = ("state", "type")
    search_fields = ("name", "hostname", "id")
    ordering: ClassVar = ["-id"]
    exclude = ("token",)

    @admin.display(description="Instance page")
    def page(self, server: Server) -> SafeString:
        return format_html('<a href="{}">Show</a>', reverse("instance:server", args=[server.pk]))


@admin.register(ServerEvent)
class ServerEventAdmin(ReadOnly):
    list_display = ("at", "server_name", "from_state", "to_state", "actor", "reason")
    list_filter = ("to_state",)
    search_fields = ("server_name", "server_id")
    ordering: ClassVar = ["-id"]


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnly):
    """Tokens are made and revoked by commands; their digests are shown nowhere."""

    fields = ("name", "role", "prefix", "created_at", "expires_at", "revoked_at")
    list_display = ("name", "role", "prefix", "created_at", "expires_at", "revoked_at")
    list_filter = ("role",)
    search_fields = ("name", "prefix")
