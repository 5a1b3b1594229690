"""Search by id."""

import re
from uuid import UUID

from django.db.models import Q

ID_PART = re.compile(r"[0-9a-fA-F-]{4,36}")


def id_condition(word: str) -> Q:
    """Return a condition for rows with this id, or with an id that begins with this text. It uses the index."""
    if id := parse_uuid(word):
        return Q(pk=id)
    digits = word.replace("-", "")
    if not ID_PART.fullmatch(word) or not 8 <= len(digits) < 32:
        return Q(pk__in=[])
    return Q(pk__range=(UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))))


def parse_uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
