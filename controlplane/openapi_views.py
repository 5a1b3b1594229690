"""Views of the OpenAPI document and of the page that shows it."""

from functools import cache
from hashlib import sha256
from threading import Lock
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from drf_spectacular.settings import patched_settings
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request

from controlplane import openapi  # noqa: F401 - registers its extensions
from controlplane.core.calls import OwnSettings, extend_schema
from controlplane.openapi_settings import DOCUMENT

building = Lock()
PATH = "/api/schema"


@cache
def document(renderer: Any, prefix: str) -> tuple[bytes, str]:
    """Return the document in the form that is sent, and its ETag. It depends only on the code, so it is built once.

    `prefix` is the path under which a project includes our URLs.
    """
    with patched_settings({name: value for name, value in DOCUMENT.items() if not name.startswith("SERVE_")}):
        generator = SpectacularAPIView.generator_class(urlconf="controlplane.urls")
        document: Any = generator.get_schema(request=None, public=True)
    if prefix:
        document["servers"] = [{"url": prefix}]
    body: bytes = renderer().render(document, renderer_context={})
    return body, f'"{sha256(body).hexdigest()}"'


class Schema(OwnSettings, SpectacularAPIView):
    """View of `GET /api/schema`: the document as YAML or JSON, without a token."""

    renderer_classes = SpectacularAPIView.renderer_classes

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase | None:
        renderer: Any = request.accepted_renderer
        with building:  # other callers wait for the first build
            body, etag = document(renderer.__class__, request.path.removesuffix(PATH))
        headers = {
            "ETag": etag,
            "Cache-Control": "no-cache",
            "Content-Disposition": f'inline; filename="controlplane.{renderer.format}"',
        }
        answer = HttpResponse(body, content_type=renderer.media_type, headers=headers)
        return get_conditional_response(request._request, etag=etag, response=answer)


class Docs(OwnSettings, SpectacularSwaggerSplitView):
    """View of `GET /api/docs`, without a token."""

    renderer_classes = SpectacularSwaggerSplitView.renderer_classes
    template_name = "admin/docs.html"
    url_name = "controlplane-schema"

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().get(request, *args, **kwargs)
