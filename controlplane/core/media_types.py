"""Parsers and renderers of the API's bodies for Django REST Framework."""

from collections.abc import Mapping
from typing import IO, Any

import orjson
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer

from controlplane.agent.limits import BODY_LIMIT
from controlplane.core.json_bodies import read_foreign_json, render_json


class TooLarge(APIException):
    status_code = 413
    default_detail = f"The body is larger than {BODY_LIMIT} bytes."
    default_code = "too_large"


class ResultParser(BaseParser):
    """Parser for the calls of servers: UTF-8 JSON of at most 1 MiB, without NUL characters and lone surrogates.

    PostgreSQL can store neither of these characters. A number with a fraction becomes a 64-bit float, however many
    digits it has. Such a number is a measurement or a result that was a float before. It must not cause the refusal of
    a heartbeat.
    """

    media_type = "application/json"
    keeps_digits = False

    def parse(self, stream: IO[bytes], media_type: str | None = None, context: Mapping[str, Any] | None = None) -> Any:
        body = stream.read(BODY_LIMIT + 1)
        if len(body) > BODY_LIMIT:
            raise TooLarge
        try:
            return read_foreign_json(body, keeps_digits=self.keeps_digits)
        except orjson.JSONDecodeError as error:
            raise ParseError(f"The body is not JSON: {error}") from None


class JSONParser(ResultParser):
    """Parser for all other calls. Unlike `ResultParser`, it refuses a number with more digits than a float keeps."""

    keeps_digits = True


class JSONRenderer(BaseRenderer):
    """Renderer of UTF-8 JSON. Times are RFC 3339 in UTC."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: object, accepted_media_type: str | None = None, context: object = None) -> bytes:
        return render_json(data)


class JSONLinesRenderer(JSONRenderer):
    """Renderer of one item per line. The `Link` header points to the next page. A problem stays one document."""

    media_type = "application/x-ndjson"
    format = "ndjson"

    def render(self, data: object, accepted_media_type: str | None = None, context: object = None) -> bytes:
        items = data["items"] if isinstance(data, Mapping) and "items" in data else [data]
        return b"".join(super(JSONLinesRenderer, self).render(item) + b"\n" for item in items)
