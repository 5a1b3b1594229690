"""Every address of the control plane."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from controlplane import openapi_views
from controlplane.core import problems
from controlplane.observability import metrics, probes

handler404 = "controlplane.console.views.errors.not_found"
handler403 = "controlplane.console.views.errors.forbidden"
handler400 = "controlplane.core.problems.bad_request"
handler500 = "controlplane.core.problems.server_error"

urlpatterns = [
    re_path(r"^$", RedirectView.as_view(pattern_name="instance:overview", http_method_names=["get", "head"])),
    path("api/v1/", include("jobs.api.urls")),
    path("api/v1/", include("liveness.api.urls")),
    path("api/schema", openapi_views.Schema.as_view(), name="schema"),
    path("api/docs", openapi_views.Docs.as_view(), name="docs"),
    re_path(r"^api/", problems.not_found),
    path("livez", probes.livez),
    path("readyz", probes.readyz),
    path("healthz", probes.healthz),
    path("metrics", metrics.Metrics.as_view()),
    path("admin/instance/", include("controlplane.console.urls")),
    path("admin/", admin.site.urls),
]
