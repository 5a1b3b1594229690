"""What every view of the API has of its own, whatever the REST settings of the project around it say."""

from collections.abc import Callable
from typing import Any, TypeVar

from django.http import HttpResponse
from drf_spectacular import utils as spectacular
from drf_spectacular.openapi import AutoSchema
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.core import database
from controlplane.core.problems import handle_exception
from controlplane.core.rest import JSONParser, JSONRenderer

F = TypeVar("F", bound=Callable[..., Any])


def extend_schema(**options: Any) -> Callable[[F], F]:
    """drf-spectacular's decorator of methods; it would take what it extends from the settings of the project."""
    extend = spectacular.extend_schema(**options)

    def describe(method: F) -> F:
        vars(method).setdefault("kwargs", {}).setdefault("schema", AutoSchema)
        return extend(method)

    return describe


class Negotiation(DefaultContentNegotiation):
    """Who asks for nothing in particular gets the first there is, which is not worth looking for."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        first, meta = renderers[0], request._request.META
        is_particular = format_suffix or meta.get("QUERY_STRING")
        if not is_particular and meta.get("HTTP_ACCEPT", "*/*") in ("*/*", first.media_type):
            return first, first.media_type
        return super().select_renderer(request, renderers, format_suffix)


class OwnSettings(APIView):
    """Everybody may call it; bodies and answers are JSON, refusals problem documents."""

    authentication_classes = []
    permission_classes = []
    throttle_classes = []
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = Negotiation
    metadata_class = None
    versioning_class = None
    schema = AutoSchema()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        database.reset_may_have_changed()
        super().initial(request, *args, **kwargs)

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], HttpResponse | None]:
        return handle_exception
