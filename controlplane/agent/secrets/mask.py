"""Mask the secrets of an attempt in its reports."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any
from urllib.parse import quote, quote_plus

from controlplane.agent.secrets.values import MASK, mask_addresses

SHORTEST_MASKED = 4  # characters: shorter texts occur by chance everywhere
SHORTEST_MASKED_LINE = 8  # characters of a line of a longer secret, of which there may be many
CUT_FROM = 1000  # characters: a text this long may have been cut in the middle of a secret
LEFT_IN_ADDRESSES = ("", "/", "!*'()", "/!$&'()*+,;=:@", "/!$&'()*+,;=:@?#[]", "/!$&'()*+,;=:@?#[]%")
"""Characters that programs leave as they are: urlencode; quote; encodeURIComponent; paths and queries of RFC 3986;
encodeURI; requests, if the text has escapes already."""
FEW_FORMS_FROM = 1000
"""Characters: a longer secret is searched in fewer forms, to limit the work. Its lines are searched in all forms."""
ESCAPE = re.compile("%[0-9A-F]{2}")
IN_HTML_OF_JSON = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
"""Escapes of Go and Django."""
READ_BY_PEOPLE = ("lines", "error", "message", "text")
REPORTED = (*READ_BY_PEOPLE, "output", "value")
"""The fields of a report that come from the code of a job."""


class SecretMask:
    """Mask secrets and their longer lines, as they are and as JSON, Python, HTML and addresses write them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        parts = {part for secret in secrets for part in (secret, *_lines_of(secret))}
        forms = {form for part in parts for form in _forms_of(part)}
        self._forms = sorted((form for form in forms if len(form) >= SHORTEST_MASKED), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms))) if self._forms else None

    def mask_report(self, report: dict[str, Any], fields: Collection[str] = REPORTED) -> dict[str, Any]:
        if self._pattern is None:
            return report
        return {name: map_texts(value, self.mask_text) if name in fields else value for name, value in report.items()}

    def mask_text(self, text: str) -> str:
        if self._pattern is None:
            return text
        masked = self._pattern.sub(MASK, text)
        return self._mask_ends(masked) if len(text) >= CUT_FROM else masked

    def _mask_ends(self, text: str) -> str:
        body = text.removesuffix("…")
        for form in self._forms:
            at = form.find(body[:SHORTEST_MASKED], 1)
            while at != -1 and not body.startswith(form[at:]):
                at = form.find(body[:SHORTEST_MASKED], at + 1)
            if at != -1:
                body = MASK + body[len(form) - at :]
            kept = form.rfind(body[-SHORTEST_MASKED:], 0, len(form) - 1) + SHORTEST_MASKED
            while kept >= SHORTEST_MASKED and not body.endswith(form[:kept]):
                kept = form.rfind(body[-SHORTEST_MASKED:], 0, kept - 1) + SHORTEST_MASKED
            if kept >= SHORTEST_MASKED:
                body = body[:-kept] + MASK
        return body + text[len(text.removesuffix("…")) :]


def mask_passwords(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without passwords of addresses, in the fields that people read."""
    return {
        name: map_texts(value, mask_addresses) if name in READ_BY_PEOPLE else value for name, value in report.items()
    }


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with all its texts and names changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {change(str(name)): map_texts(item, change) for name, item in value.items()}
    return value


def _lines_of(secret: str) -> list[str]:
    return [line for line in secret.split("\n") if len(line) >= SHORTEST_MASKED_LINE]


def _forms_of(part: str) -> set[str]:
    """Return the text as it is, and as JSON, Python, HTML and addresses write it."""
    text = part.strip()
    if text.isalnum() and text.isascii():
        return {text}
    in_json = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    if len(text) > FEW_FORMS_FROM:
        return {text, *in_json, repr(text)[1:-1], quote(text, safe=""), quote_plus(text)}
    in_json |= {form.replace("/", r"\/") for form in in_json}
    in_json |= {form.translate(IN_HTML_OF_JSON) for form in in_json}
    in_address = {write(text, safe=safe) for write in (quote, quote_plus) for safe in LEFT_IN_ADDRESSES}
    in_address |= {ESCAPE.sub(lambda found: found[0].lower(), form) for form in in_address}
    return {text, *in_json, *in_address, repr(text)[1:-1], html.escape(text), html.escape(text, quote=False)}
