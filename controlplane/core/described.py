"""Enums whose members each have a line that explains them."""

from enum import StrEnum
from typing import Self


class Described(StrEnum):
    """Enum of words with explanations: `CREATED = "CREATED", "It has registered…"`. The line is in `meaning`."""

    _value_: str
    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    @classmethod
    def choices(cls) -> list[tuple[str, str]]:
        """Return each word with its line, in the form that form fields and serializers take."""
        return [(word.value, word.meaning) for word in cls]
