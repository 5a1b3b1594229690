"""Staff with permissions."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from django.contrib.auth.models import Permission, User
from django.db.models import Q
from django.utils.crypto import get_random_string

from jobs.permissions import VIEWS
from liveness.models import ALL_NAMESPACES, OF_NAMESPACE


def permissions(names: Iterable[str]) -> list[Permission]:
    """Return the permissions with these names, like `liveness.view_server`."""
    each = [
        Q(content_type__app_label=app, codename=name) for app, name in (permission.split(".") for permission in names)
    ]
    return list(Permission.objects.filter(reduce(or_, each))) if each else []


SEES_ALL = f"liveness.{ALL_NAMESPACES}"


def employ(*names: str) -> User:
    """Create a staff user with these permissions, in the namespaces that they name, otherwise in all."""
    sees_all = not any(OF_NAMESPACE in name for name in names)
    user = User.objects.create_user(get_random_string(8), is_staff=True)
    user.user_permissions.set(permissions([*names, SEES_ALL] if sees_all else names))
    return user


def viewing(*codenames: str) -> list[Permission]:
    """Return the permissions to view all Instance pages in all namespaces, and these further ones."""
    return [*permissions([*VIEWS.values(), SEES_ALL]), *Permission.objects.filter(codename__in=codenames)]
