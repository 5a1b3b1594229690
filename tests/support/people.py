"""Staff with permissions."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from django.contrib.auth.models import Permission, User
from django.db.models import Q
from django.utils.crypto import get_random_string

from jobs.permissions import VIEWS


def permissions(names: Iterable[str]) -> list[Permission]:
    """Those of these names, like `liveness.view_server`."""
    each = [
        Q(content_type__app_label=app, codename=name) for app, name in (permission.split(".") for permission in names)
    ]
    return list(Permission.objects.filter(reduce(or_, each))) if each else []


def employ(*names: str) -> User:
    """Staff who has these permissions."""
    user = User.objects.create_user(get_random_string(8), is_staff=True)
    user.user_permissions.set(permissions(names))
    return user


def viewing(*codenames: str) -> list[Permission]:
    """Those to view all that the Instance pages show, and more."""
    return [*permissions(VIEWS.values()), *Permission.objects.filter(codename__in=codenames)]
