"""Words that say what they mean: an enum whose members have a line each."""

from enum import StrEnum
from typing import Self


class Described(StrEnum):
    """`CREATED = "CREATED", "It has registered…"`: the word, and its line as `meaning`."""

    _value_: str
    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    @classmethod
    def choices(cls) -> list[tuple[str, str]]:
        """Each word with its line, as fields of forms and serializers take them."""
        return [(word.value, word.meaning) for word in cls]
