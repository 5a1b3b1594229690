"""Admin site that contains the Instance pages."""

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.urls import NoReverseMatch, resolve, reverse


def current_admin_site() -> AdminSite:
    """Return the admin site in the project's URLs. It may be the host project's own.

    If there are several, return Django's default site if it is among them, otherwise the last one.
    """
    try:
        index = resolve(reverse("admin:index")).func
    except NoReverseMatch:
        return admin.site
    site = getattr(index, "admin_site", admin.site)
    return site if isinstance(site, AdminSite) else admin.site
