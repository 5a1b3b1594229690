"""The OpenAPI document, and the page that shows it."""

from functools import cache
from hashlib import sha256
from threading import Lock
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request

building = Lock()


@cache
def document(renderer: Any) -> tuple[bytes, str]:
    """The document as it is sent, and its ETag. It says what the code does, so that it is built once in a process."""
    document: Any = SpectacularAPIView.generator_class().get_schema(request=None, public=True)
    body: bytes = renderer().render(document, renderer_context={})
    return body, f'"{sha256(body).hexdigest()}"'


class Schema(SpectacularAPIView):
    """`GET /api/schema`, as YAML or JSON, to everybody."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase | None:
        renderer: Any = request.accepted_renderer
        with building:  # who asks meanwhile waits for the first, and builds none himself
            body, etag = document(renderer.__class__)
        headers = {
            "ETag": etag,
            "Cache-Control": "no-cache",
            "Content-Disposition": f'inline; filename="controlplane.{renderer.format}"',
        }
        answer = HttpResponse(body, content_type=renderer.media_type, headers=headers)
        return get_conditional_response(request._request, etag=etag, response=answer)


class Docs(SpectacularSwaggerSplitView):
    """`GET /api/docs`, to everybody."""

    url_name = "schema"
