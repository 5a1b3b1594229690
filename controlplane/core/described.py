"""Enums in which each member has a line that explains it."""

from enum import StrEnum
from typing import Self


class Described(StrEnum):
    """Enum of words with explanations: `CREATED = "CREATED", "It has registered…"`. The explanation is in `meaning`."""

    _value_: str
    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    @classmethod
    def choices(cls) -> list[tuple[str, str]]:
        """Return (word, explanation) pairs, as form fields and serializers take them."""
        return [(word.value, word.meaning) for word in cls]
