"""URLs of the control plane's own site: the control plane's and the admin's."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from controlplane.console.admin.people import register_people

handler404 = "controlplane.console.views.errors.not_found"
handler403 = "controlplane.console.views.errors.forbidden"
handler400 = "controlplane.core.problems.bad_request"
handler500 = "controlplane.core.problems.server_error"

admin.site.site_header = admin.site.site_title = "Control plane"
admin.site.index_title = "Administration"
admin.site.site_url = None
admin.autodiscover()
register_people(admin.site)

urlpatterns = [path("", include("controlplane.urls")), path("admin/", admin.site.urls)]
if getattr(settings, "OIDC_ISSUER", None):
    from controlplane.console import openid

    urlpatterns = [*openid.urlpatterns, *urlpatterns]
