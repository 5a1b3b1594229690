"""Admin of users and groups on our own admin site. It allows only offered lookups, like our other admins."""

from django.contrib.admin import AdminSite
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User

from controlplane.console.admin.lookups import OfferedLookups


class OwnUserAdmin(OfferedLookups, UserAdmin):
    """Admin of users that refuses lookups on password hashes."""


class OwnGroupAdmin(OfferedLookups, GroupAdmin):
    """Admin of groups and their permissions."""


def register_people(site: AdminSite) -> None:
    """Replace Django's admins of users and groups. A host project keeps its own."""
    for model, admin_class in ((User, OwnUserAdmin), (Group, OwnGroupAdmin)):
        if site.is_registered(model):
            site.unregister(model)
        site.register(model, admin_class)
