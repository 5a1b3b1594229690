"""Namespaces that a user may access, and the namespaces that exist."""

from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django.db.models import QuerySet

from liveness.models import ALL_NAMESPACES, DEFAULT_NAMESPACE, OF_NAMESPACE, ApiToken

LOOK_AGAIN_AFTER = 10
"""Seconds for which a process caches the list of namespaces."""


@dataclass
class KnownNamespaces:
    names: list[str] = field(default_factory=list)
    until: float = 0.0


KNOWN = KnownNamespaces()


def namespaces_of_person(user: Any) -> frozenset[str] | None:
    """Return the namespaces that a user's permissions name; None means all, an empty set means none.

    Django caches the permissions of a user during a request. A superuser has every permission.
    """
    if user.has_perm(f"liveness.{ALL_NAMESPACES}"):
        return None
    before = f"liveness.{OF_NAMESPACE}"
    return frozenset(name.removeprefix(before) for name in user.get_all_permissions() if name.startswith(before))


NO_NAMESPACE = (
    f"You may see no namespace yet. Ask an administrator for the permission liveness.{ALL_NAMESPACES} (the group "
    f"*Control plane all namespaces* has it), or for liveness.{OF_NAMESPACE}NAME for one namespace."
)


def reaches_instance(namespaces: Collection[str] | None) -> bool:
    """Return True if these namespaces (None: all) give access to the control plane as a whole."""
    return namespaces is None or DEFAULT_NAMESPACE in namespaces


def namespace_of_new(namespaces: Collection[str] | None) -> str:
    """Return the namespace of a new object if its creator names none. The creator has access to `namespaces`."""
    return DEFAULT_NAMESPACE if namespaces is None or DEFAULT_NAMESPACE in namespaces else min(namespaces)


def rows_within(namespaces: Collection[str] | None, rows: QuerySet[Any], column: str = "namespace") -> QuerySet[Any]:
    """Filter rows by namespaces; None means all."""
    return rows if namespaces is None else rows.filter(**{f"{column}__in": sorted(namespaces)})


def known_namespaces(*, look: bool = True) -> list[str]:
    """Return the namespaces with tokens, cached for LOOK_AGAIN_AFTER seconds.

    With `look=False` the cached list is returned whatever its age, without a query.
    """
    if look and monotonic() >= KNOWN.until:
        KNOWN.names = list(ApiToken.objects.order_by("namespace").values_list("namespace", flat=True).distinct())
        KNOWN.until = monotonic() + LOOK_AGAIN_AFTER
    return KNOWN.names
