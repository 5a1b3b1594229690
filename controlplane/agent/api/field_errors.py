"""The `errors` of a refused request, by field and by position in a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def flatten_errors(errors: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the problem of each wrong field. A path is like `action.type` or `steps[2].key`."""
    match errors:
        case dict():
            for name, inner in errors.items():
                yield from flatten_errors(inner, f"{path}.{name}" if path else str(name))
        case list() if any(isinstance(inner, dict | list) for inner in errors):
            for number, inner in enumerate(errors):
                yield from flatten_errors(inner, f"{path}[{number}]")
        case list():
            yield path, " ".join(map(str, errors))
        case None:
            pass
        case _:
            yield path, str(errors)
