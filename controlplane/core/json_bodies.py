"""JSON of the API: request bodies, response bodies, and values stored in PostgreSQL.

Whole numbers of any length keep all their digits when read and written. orjson alone would silently turn whole numbers
beyond 64 bits into floats, and refuse to write them. So use only the functions of this module.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
from rest_framework.exceptions import ParseError

from controlplane.agent.limits import BODY_DEPTH_LIMIT

DIGITS = bytes.maketrans(b"123456789.", b"0" * 10)
LONG_NUMBER = b"0" * 19
"""Sign of a long number in a body that was translated with `DIGITS`. Shorter numbers fit 64 bits, or a float with 17
significant digits."""
FLOAT_DIGITS = 17
"""Number of significant digits with which every 64-bit float can be written and read again."""


def read_foreign_json(text: bytes | str, *, keeps_digits: bool = True) -> Any:
    """Return the value of a JSON text from outside. Raise orjson.JSONDecodeError if it is not JSON.

    Raise ParseError if it cannot be stored or is nested too deeply. With `keeps_digits`, also raise it for a number
    with a fraction that a 64-bit float would change.
    """
    body = text.encode() if isinstance(text, str) else text
    data = orjson.loads(body)
    if body.count(b"[") + body.count(b"{") > BODY_DEPTH_LIMIT:
        refuse_deep(data)
    if b"\\u0000" in body:
        refuse_nul(data)
    if has_long_number(body):
        return json.loads(body, parse_float=read_exact_float if keeps_digits else float)
    return data


def read_json(text: bytes | str) -> Any:
    """Return the value of a JSON text that this code or PostgreSQL wrote. Whole numbers keep all their digits."""
    body = text.encode() if isinstance(text, str) else text
    return json.loads(body) if has_long_number(body) else orjson.loads(body)


def has_long_number(body: bytes) -> bool:
    """Return True if the body may contain a number that fits neither 64 bits nor a float."""
    return LONG_NUMBER in body.translate(DIGITS)


def read_exact_float(text: str) -> float:
    """Return the float for a number with a fraction or an exponent. Raise ParseError if digits would be lost."""
    value, exact = float(text), Decimal(text)
    if len(exact.as_tuple().digits) > FLOAT_DIGITS and exact != Decimal(repr(value)):
        raise ParseError(
            f"The number {text[:60]} has more digits than a 64-bit float keeps ({FLOAT_DIGITS}); write it as a text."
        )
    return value


def write_json(data: object, option: int = 0, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return compact JSON in UTF-8. `option` and `default` go to orjson. Whole numbers keep all their digits."""
    try:
        return orjson.dumps(data, default, option)
    except TypeError:
        return orjson.dumps(with_large_numbers(data), default, option)


def render_json(data: object) -> bytes:
    """Return the JSON of a response body. Times are RFC 3339 in UTC."""
    return b"" if data is None else write_json(data, orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS, str)


def stored_json(text: str | None) -> orjson.Fragment | None:
    """Return a part of a response from a JSON text of PostgreSQL. The text is sent as it is."""
    return None if text is None else orjson.Fragment(text)


def with_large_numbers(data: object) -> Any:
    """Replace whole numbers beyond 64 bits by JSON fragments, because orjson does not write such numbers."""
    if isinstance(data, dict):
        return {key: with_large_numbers(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [with_large_numbers(item) for item in data]
    if type(data) is int and not -(2**63) <= data < 2**64:
        return orjson.Fragment(str(data))
    return data


def refuse_deep(data: object) -> None:
    """Raise ParseError for data nested so deeply that it could not be read again."""
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
    """Raise ParseError for NUL characters."""
    if isinstance(data, str) and "\0" in data:
        raise ParseError("A text holds the NUL character (\\u0000), which cannot be stored.")
    if isinstance(data, dict | list):
        for item in [*data, *data.values()] if isinstance(data, dict) else data:
            refuse_nul(item)


def size_of(data: object) -> int:
    """Return the size in bytes that the data has as compact JSON in UTF-8."""
    return len(write_json(data))
