"""Every address of a control plane that is a site of its own: ours, and the admin."""

from django.contrib import admin
from django.urls import include, path

handler404 = "controlplane.console.views.errors.not_found"
handler403 = "controlplane.console.views.errors.forbidden"
handler400 = "controlplane.core.problems.bad_request"
handler500 = "controlplane.core.problems.server_error"

admin.site.site_header = admin.site.site_title = "Control plane"
admin.site.index_title = "Administration"
admin.site.site_url = None

urlpatterns = [path("", include("controlplane.urls")), path("admin/", admin.site.urls)]
