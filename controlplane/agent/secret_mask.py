"""Takes the secrets of an attempt out of all that is reported of it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import quote

from controlplane.agent.secret_values import MASK

LEAST = 4  # characters: what is shorter stands in half of all texts by chance
LEAST_LINE = 8  # characters of a line of a longer secret, of which there may be many
CUT_FROM = 1000  # characters: a text of so many may have been cut, and a secret with it
READ_BY_PEOPLE = ("lines", "error", "message")
REPORTED = (*READ_BY_PEOPLE, "output", "value")
"""What a report has of a job's code."""


class SecretMask:
    """Masks the texts themselves, each of their longer lines, and how JSON, Python and an address write them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        parts = {part for secret in secrets for part in (secret, *_lines_of(secret))}
        forms = {form for part in parts for form in _forms_of(part)}
        self._forms = sorted((form for form in forms if len(form) >= LEAST), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms))) if self._forms else None

    def mask_report(self, report: dict[str, Any], fields: Collection[str] = REPORTED) -> dict[str, Any]:
        if self._pattern is None:
            return report
        return {name: self._mask(value) if name in fields else value for name, value in report.items()}

    def mask_text(self, text: str) -> str:
        if self._pattern is None:
            return text
        masked = self._pattern.sub(MASK, text)
        return self._mask_ends(masked) if len(text) >= CUT_FROM else masked

    def _mask(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, list):
            return [self._mask(item) for item in value]
        if isinstance(value, dict):
            return {self.mask_text(str(name)): self._mask(item) for name, item in value.items()}
        return value

    def _mask_ends(self, text: str) -> str:
        body = text.removesuffix("…")
        for form in self._forms:
            at = form.find(body[:LEAST], 1)
            while at != -1 and not body.startswith(form[at:]):
                at = form.find(body[:LEAST], at + 1)
            if at != -1:
                body = MASK + body[len(form) - at :]
            kept = form.rfind(body[-LEAST:], 0, len(form) - 1) + LEAST
            while kept >= LEAST and not body.endswith(form[:kept]):
                kept = form.rfind(body[-LEAST:], 0, kept - 1) + LEAST
            if kept >= LEAST:
                body = body[:-kept] + MASK
        return body + text[len(text.removesuffix("…")) :]


def _lines_of(secret: str) -> list[str]:
    return [line for line in secret.split("\n") if len(line) >= LEAST_LINE]


def _forms_of(part: str) -> set[str]:
    text = part.strip()
    escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    return {text, *escaped, quote(text, safe="")}
