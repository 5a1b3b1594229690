"""A line of a log as HTML: its colours, its links, and the matches of a search."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString
from rich.color import ColorSystem
from rich.style import Style
from rich.text import Text

LINK = re.compile(r"https?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]}]")
TITLE = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")  # sets the title of a terminal window
ERROR = re.compile(r"\b(error|fatal|critical|exception|traceback|panic)\b", re.IGNORECASE)
LEVEL_WITHIN = 200
"""Characters at the beginning of a line in which a word for its level is looked for."""


class Piece(NamedTuple):
    """Part of a line that looks the same throughout."""

    start: int
    end: int
    opening: SafeString
    closing: SafeString


def show_log_text(line: str, sought: str | None = None) -> SafeString:
    """Return a line as HTML with the colours, bold, italic and underline that its escape codes ask for.

    `sought` is a text whose matches are marked, in upper and lower case. A progress bar overwrites its line; only its
    last state is shown.
    """
    text = Text.from_ansi(TITLE.sub("", line))
    pieces = [*find_matches(text.plain, sought), *find_styles(text), *find_links(text.plain)]
    if not pieces:
        return conditional_escape(text.plain)
    places = sorted({0, len(text.plain), *(place for piece in pieces for place in (piece.start, piece.end))})
    return SafeString("".join(cut(text.plain, start, end, pieces) for start, end in pairwise(places)))


def cut(plain: str, start: int, end: int, pieces: list[Piece]) -> str:
    """Return a part of the line inside the elements of all pieces that cover it."""
    covering = [piece for piece in pieces if piece.start <= start and end <= piece.end]
    opening = "".join(piece.opening for piece in covering)
    closing = "".join(piece.closing for piece in reversed(covering))
    return f"{opening}{conditional_escape(plain[start:end])}{closing}"


def find_matches(plain: str, sought: str | None) -> Iterator[Piece]:
    for match in re.finditer(re.escape(sought), plain, re.IGNORECASE) if sought else ():
        yield Piece(*match.span(), SafeString("<mark>"), SafeString("</mark>"))


def find_links(plain: str) -> Iterator[Piece]:
    for match in LINK.finditer(plain):
        opening = format_html('<a href="{}" rel="noopener noreferrer nofollow">', match[0])
        yield Piece(*match.span(), opening, SafeString("</a>"))


def find_styles(text: Text) -> Iterator[Piece]:
    for start, end, style in text.spans:
        if isinstance(style, Style) and (names := " ".join(name_classes(style))):
            yield Piece(start, end, format_html('<span class="{}">', names), SafeString("</span>"))


def name_classes(style: Style) -> Iterator[str]:
    """Yield the CSS classes of a style. Each colour becomes the nearest of the terminal's sixteen."""
    if style.color and not style.color.is_default:
        yield f"ansi-{style.color.downgrade(ColorSystem.STANDARD).number}"
    for name in ("bold", "italic", "underline"):
        if getattr(style, name):
            yield f"ansi-{name}"


def is_error(line: str) -> bool:
    """Return True if the beginning of a line reports that something failed."""
    return bool(ERROR.search(Text.from_ansi(line[:LEVEL_WITHIN]).plain))
