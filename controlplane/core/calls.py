"""Base class of all API views. It does not depend on the REST settings of the host project."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from django.http import HttpResponse
from drf_spectacular import utils as spectacular
from drf_spectacular.openapi import AutoSchema
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core import database
from controlplane.core.media_types import JSONParser, JSONRenderer
from controlplane.core.problems import UNCACHED, handle_exception

F = TypeVar("F", bound=Callable[..., Any])

GROUPS = {
    "jobs": "Jobs", "executions": "Executions", "triggers": "Triggers", "batches": "Bulk actions",
    "holds": "Holds", "queues": "Queues", "servers": "Servers", "recovery": "Recovery",
}  # fmt: skip
"""Groups of calls in the OpenAPI document, by the first word of their path. Other calls are in the group `Instance`."""
END_OF_SENTENCE = re.compile(r"[.:;](?:\s|$)")


class CallSchema(AutoSchema):
    """OpenAPI description of a call: its group, its summary (first sentence of the docstring), and who may call."""

    view: "OwnSettings"  # type: ignore[assignment,override,unused-ignore]

    def get_tags(self) -> list[str]:
        return [self.view.group or GROUPS.get(self.path.partition("/v1/")[2].partition("/")[0], "Instance")]

    def get_summary(self) -> str:
        return END_OF_SENTENCE.split(" ".join(super().get_description().split()), maxsplit=1)[0]

    def get_description(self) -> str:  # type: ignore[override]
        return f"{super().get_description()}\n\nWho may call: {self.view.describe_callers(self.method)}."


def extend_schema(**options: Any) -> Callable[[F], F]:
    """Wrap drf-spectacular's decorator for methods.

    The original would extend the schema class that the host project's settings name.
    """
    extend = spectacular.extend_schema(**options)

    def describe(method: F) -> F:
        vars(method).setdefault("kwargs", {}).setdefault("schema", CallSchema)
        return extend(method)

    return describe


class Negotiation(DefaultContentNegotiation):
    """Choose the first renderer at once if the request asks for no particular format."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        first, meta = renderers[0], request._request.META
        is_particular = format_suffix or meta.get("QUERY_STRING")
        if not is_particular and meta.get("HTTP_ACCEPT", "*/*") in ("*/*", first.media_type):
            return first, first.media_type
        return super().select_renderer(request, renderers, format_suffix)


class OwnSettings(APIView):
    """View that anyone may call. Requests and responses are JSON, and errors are problem documents."""

    authentication_classes = []
    permission_classes = []
    throttle_classes = []
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = Negotiation
    metadata_class = None
    versioning_class = None
    schema = CallSchema()
    group = ""
    """Group of these calls in the OpenAPI document, if their path does not determine it."""

    def describe_callers(self, method: str) -> str:
        """Return a text for the OpenAPI document that names the allowed callers."""
        return "everybody"

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        database.reset_may_have_changed()
        super().initial(request, *args, **kwargs)

    def finalize_response(self, request: Request, response: Any, *args: object, **kwargs: object) -> Any:
        """Add headers, and break the reference cycles between request, view and response.

        Without this, a list of a thousand jobs would stay in memory until Python's garbage collector runs.
        """
        response = super().finalize_response(request, response, *args, **kwargs)
        for name, value in UNCACHED.items():
            response.headers.setdefault(name, value)
        vars(self).pop("head", None)
        request.parser_context.clear()
        if isinstance(response, Response):
            response.add_post_render_callback(self.let_go_of_answer)
        return response

    def let_go_of_answer(self, answer: Response) -> None:
        vars(answer)["renderer_context"].pop("response", None)
        vars(self).pop("response", None)

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], HttpResponse | None]:
        return handle_exception
