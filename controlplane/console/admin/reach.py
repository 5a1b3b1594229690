"""Base class of admins that show only rows of the user's namespaces."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from controlplane.console.admin.lookups import OfferedLookups
from controlplane.console.page import reached_namespaces
from liveness.selectors.namespaces import reaches_instance, rows_within


class ReachedRows(OfferedLookups):
    """ModelAdmin that shows only rows of the user's namespaces. A user without a namespace sees nothing."""

    namespace_path: str | None = "namespace"
    """Column with the namespace of a row. None means that the table is about the whole control plane."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if self.namespace_path is None:
            return rows
        return rows_within(reached_namespaces(request), rows, self.namespace_path)

    def is_reached(self, request: HttpRequest) -> bool:
        """Return True if the user's namespaces allow this table. Model permissions are checked separately."""
        reached = reached_namespaces(request)
        return reaches_instance(reached) if self.namespace_path is None else reached != frozenset()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.is_reached(request) and super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.is_reached(request) and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.is_reached(request) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.is_reached(request) and super().has_delete_permission(request, obj)
