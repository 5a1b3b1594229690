"""URLs of a project with its own admin site, which asks for a second factor."""

from django.contrib.admin import AdminSite
from django.urls import include, path

SECOND_FACTOR = "second_factor"


class StrictSite(AdminSite):
    site_header = "Back office"

    def has_permission(self, request):
        return super().has_permission(request) and bool(request.session.get(SECOND_FACTOR))


site = StrictSite(name="backoffice")
urlpatterns = [path("plane/", include("controlplane.urls")), path("backoffice/", site.urls)]
