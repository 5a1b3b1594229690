"""Column heads that sort a list on the server: their links and directions."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode


class SortHead(NamedTuple):
    """Link of a column head. A click on the chosen column reverses the order."""

    url: str
    direction: str
    """Value of `aria-sort`: ascending, descending, or empty for another column."""


def build_sort_heads(texts: Mapping[str, str], columns: Iterable[str]) -> dict[str, SortHead]:
    """Return the heads by column. `texts` are the query parameters of the list, with `sort` for its order."""
    present, others = texts.get("sort", ""), {name: text for name, text in texts.items() if name != "sort"}
    heads = {}
    for column in columns:
        directions = {column: "ascending", f"-{column}": "descending"}
        onward = f"-{column}" if present == column else column
        heads[column] = SortHead(f"?{urlencode({**others, 'sort': onward})}", directions.get(present, ""))
    return heads
