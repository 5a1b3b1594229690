"""Every address of the control plane."""

from django.contrib import admin
from django.urls import include, path, re_path

from controlplane import docs, metrics, probes, problems

handler400 = "controlplane.problems.bad_request"
handler500 = "controlplane.problems.server_error"

urlpatterns = [
    path("api/v1/", include("jobs.api.urls")),
    path("api/v1/", include("liveness.api.urls")),
    path("api/schema", docs.Schema.as_view(), name="schema"),
    path("api/docs", docs.Docs.as_view(), name="docs"),
    re_path(r"^api/", problems.not_found),
    path("livez", probes.livez),
    path("readyz", probes.readyz),
    path("healthz", probes.healthz),
    path("metrics", metrics.Metrics.as_view()),
    path("admin/instance/", include("jobs.pages")),
    path("admin/", admin.site.urls),
]
