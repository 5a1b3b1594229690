"""Output of the commands: tables for people, or JSON with one document per line.

On a terminal with rich installed tables are coloured. Otherwise they are columns of plain text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controlplane.agent.clean_text import CONTROL, escaped

try:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError:  # without it tables are plain text
    Console = None  # type: ignore[assignment, misc]

COLOURS = {
    "COMPLETED": "green", "RUNNING": "cyan", "CLAIMED": "cyan", "FAILED": "red", "ERROR": "red", "DISCONNECTED": "red",
    "RESUBMITTED": "yellow", "CANCELLED": "yellow", "EXPIRED": "yellow", "TERMINATING": "yellow", "INACTIVE": "dim",
    "NOT_RUNNING": "dim", "SKIPPED": "dim",
}  # fmt: skip
WIDEST = 60
"""Largest number of characters in a table cell. Cells of the last column and JSON output are never cut."""


class Output:
    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json
        self.is_terminal = sys.stdout.isatty()
        self.console = Console() if Console is not None and self.is_terminal and not is_json else None

    def line(self, text: str) -> None:
        """Print a line. Control characters are replaced on a terminal, but kept for programs."""
        sys.stdout.write(f"{escaped(text) if self.is_terminal else text}\n")
        sys.stdout.flush()

    def document(self, item: Any) -> None:
        text = json.dumps(item, ensure_ascii=False)
        if self.is_terminal:  # JSON escapes \x1b, but neither \x9b nor \u202e
            text = CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def listed(self, items: Iterable[Mapping[str, Any]], columns: Mapping[str, Any]) -> None:
        """Print items. `columns` maps each column's head to a function that returns its cell."""
        if self.is_json:
            for item in items:
                self.document(item)
        else:
            self.table(list(columns), [[cell_of(item) for cell_of in columns.values()] for item in items])

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        cells = [[*map(cell_text, row[:-1]), whole_text(row[-1])] for row in rows]
        if self.console:
            self.console.print(rich_table(heads, cells))
            return
        for row in [list(heads), *cells] if heads else cells:
            widths = [max(len(other[place]) for other in [heads or row, *cells]) for place in range(len(row))]
            padded = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            sys.stdout.write("  ".join(padded).rstrip() + "\n")

    def fields(self, item: Mapping[str, Any], names: Iterable[str]) -> None:
        """Print the named fields that have a value."""
        shown = [(name, item[name]) for name in names if item.get(name) not in (None, "", [], {})]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            sys.stdout.write(f"{name.ljust(width)}  {escaped(text)}\n")


def rich_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=bool(heads))
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head == "id", min_width=36 if head == "id" else None)
    for row in rows:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    return table


def whole_text(value: Any) -> str:
    return escaped("" if value is None else str(value))


def cell_text(value: Any) -> str:
    text = whole_text(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def time_text(value: str | None) -> str:
    """Return the time to the second."""
    return f"{value[:19]}Z" if value else ""
