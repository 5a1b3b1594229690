"""URLs of the control plane: in its own site, and in any project that includes them."""

from django.apps import apps
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from controlplane import openapi_views
from controlplane.core import problems
from controlplane.observability import metrics, probes

urlpatterns = [
    re_path(r"^$", RedirectView.as_view(pattern_name="instance:overview", http_method_names=["get", "head"])),
    path("api/v1/", include("jobs.api.urls")),
    path("api/v1/", include("liveness.api.urls")),
    path("api/schema", openapi_views.Schema.as_view(), name="controlplane-schema"),
    *(
        [path("api/docs", openapi_views.Docs.as_view(), name="controlplane-docs")]
        if apps.is_installed("drf_spectacular") and apps.is_installed("drf_spectacular_sidecar")
        else []
    ),
    re_path(r"^api/", problems.not_found),
    path("livez", probes.livez),
    path("readyz", probes.readyz),
    path("healthz", probes.healthz),
    path("metrics", metrics.Metrics.as_view()),
    path("admin/instance/", include("controlplane.console.urls")),
]
