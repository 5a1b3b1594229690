"""Bodies of the API and their answers, as JSON."""

import json
import re
from collections.abc import Mapping
from typing import IO, Any

import orjson
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.utils.encoders import JSONEncoder

from controlplane.agent.limits import BODY_DEPTH_LIMIT, BODY_LIMIT

MANY_DIGITS = re.compile("[0-9]{16}")
"""A number of so many may be one beyond 64 bits, or more exact than a float."""


class TooLarge(APIException):
    status_code = 413
    default_detail = f"The body is larger than {BODY_LIMIT} bytes."
    default_code = "too_large"


class JSONParser(BaseParser):
    """UTF-8 JSON of at most 1 MiB, without NUL characters and lone surrogates: PostgreSQL stores neither."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, context: Mapping[str, Any] | None = None) -> Any:
        body = stream.read(BODY_LIMIT + 1)
        if len(body) > BODY_LIMIT:
            raise TooLarge
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ParseError(f"The body is not JSON: {error}") from None
        if body.count(b"[") + body.count(b"{") > BODY_DEPTH_LIMIT:
            refuse_deep(data)
        if b"\\u0000" in body:
            refuse_nul(data)
        return data


def refuse_unstorable(data: object) -> None:
    """Raises ParseError for NUL characters and for what is nested too deeply to be read again."""
    refuse_deep(data)
    refuse_nul(data)


def refuse_deep(data: object) -> None:
    """Raises ParseError for what is nested too deeply to be read again."""
    level = [data]
    for _ in range(BODY_DEPTH_LIMIT + 1):
        level = [
            item
            for part in level
            if type(part) is dict or type(part) is list
            for item in (part.values() if type(part) is dict else part)
        ]
        if not level:
            return
    raise ParseError(f"The body is nested more than {BODY_DEPTH_LIMIT} levels deep.")


def refuse_nul(data: object) -> None:
    """Raises ParseError for NUL characters."""
    if isinstance(data, str) and "\0" in data:
        raise ParseError("A text holds the NUL character (\\u0000), which cannot be stored.")
    if isinstance(data, dict | list):
        for item in [*data, *data.values()] if isinstance(data, dict) else data:
            refuse_nul(item)


class JSONRenderer(BaseRenderer):
    """UTF-8 JSON; times RFC 3339 in UTC."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: object, accepted_media_type: str | None = None, context: object = None) -> bytes:
        if data is None:
            return b""
        try:
            return orjson.dumps(data, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS, default=str)
        except TypeError:  # a whole number beyond 64 bits, which PostgreSQL keeps as it is
            return json.dumps(data, cls=JSONEncoder).encode()


class JSONLinesRenderer(JSONRenderer):
    """The items, one in each line; the `Link` header says where they go on. A problem stays one document."""

    media_type = "application/x-ndjson"
    format = "ndjson"

    def render(self, data: object, accepted_media_type: str | None = None, context: object = None) -> bytes:
        items = data["items"] if isinstance(data, Mapping) and "items" in data else [data]
        return b"".join(super(JSONLinesRenderer, self).render(item) + b"\n" for item in items)


def read_stored(text: str) -> Any:
    """JSON that PostgreSQL keeps, with each of its numbers as it is there."""
    return json.loads(text) if MANY_DIGITS.search(text) else orjson.loads(text)


def size_of(data: object) -> int:
    """Bytes of compact JSON in UTF-8."""
    try:
        return len(orjson.dumps(data))
    except TypeError:  # a whole number beyond 64 bits
        return len(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode())
