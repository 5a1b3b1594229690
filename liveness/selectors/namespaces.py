"""Who reaches which namespaces, and which there are."""

from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django.db.models import QuerySet

from liveness.models import DEFAULT_NAMESPACE, OF_NAMESPACE, ApiToken

LOOK_AGAIN_AFTER = 10
"""Seconds for which a process knows which namespaces there are."""


@dataclass
class KnownNamespaces:
    names: list[str] = field(default_factory=list)
    until: float = 0.0


KNOWN = KnownNamespaces()


def namespaces_of_person(user: Any) -> frozenset[str] | None:
    """Those that somebody who is signed in reaches: which his permissions, mostly his groups', name. None: all, for
    they name none. (Django reads the permissions anyway, and once.)"""
    if user.is_superuser:
        return None
    before = f"liveness.{OF_NAMESPACE}"
    named = (name.removeprefix(before) for name in user.get_all_permissions() if name.startswith(before))
    return frozenset(named) or None


def reaches_instance(namespaces: Collection[str] | None) -> bool:
    """Whether who reaches these sees, and changes, what is about the whole control plane."""
    return namespaces is None or DEFAULT_NAMESPACE in namespaces


def namespace_of_new(namespaces: Collection[str] | None) -> str:
    """Of what somebody makes who reaches these and names none."""
    return DEFAULT_NAMESPACE if namespaces is None or DEFAULT_NAMESPACE in namespaces else min(namespaces)


def rows_within(namespaces: Collection[str] | None, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Of these rows those of some namespaces. None: of all."""
    return rows if namespaces is None else rows.filter(namespace__in=sorted(namespaces))


def known_namespaces(*, look: bool = True) -> list[str]:
    """Those for which there are tokens, as this process found them when it last looked, lately or not."""
    if look and monotonic() >= KNOWN.until:
        KNOWN.names = list(ApiToken.objects.order_by("namespace").values_list("namespace", flat=True).distinct())
        KNOWN.until = monotonic() + LOOK_AGAIN_AFTER
    return KNOWN.names
