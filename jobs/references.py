"""References: objects in the payload of a step that stand for a value of the execution. This module needs no Django.

`{"from": "$.steps.extract.output.rows", "default": []}` stands for an output. PostgreSQL evaluates the path when the
step begins (SQL function `resolved_step`). Paths are read here in PostgreSQL's canonical text, in which every name is
quoted and `$` outside of quotes is always the root.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple

FROM, DEFAULT = "from", "default"
OF_ITEM = (["item"], ["index"])
PATH_START = re.compile(r"\s*(?:(?:lax|strict)\s+)?\$")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)


class PathUse(NamedTuple):
    """Part of the context that a path reads."""

    steps: frozenset[str]
    is_of_item: bool
    """True: it reads the item of a loop or its index."""


class WrongPath(ValueError):
    """A step may not use this path. The message completes the sentence "The path … "."""


def is_reference(value: object) -> bool:
    """Return True for an object that stands for a value of the execution."""
    return (
        isinstance(value, dict)
        and isinstance(path := value.get(FROM), str)
        and value.keys() <= {FROM, DEFAULT}
        and PATH_START.match(path) is not None
    )


def find_references(value: object, pointer: str = "") -> Iterator[tuple[str, str]]:
    """Yield the JSON pointer and the path of each reference in a value."""
    if isinstance(value, dict):
        if is_reference(value):
            yield pointer, value[FROM]
            return
        for name, item in value.items():
            yield from find_references(item, f"{pointer}/{escape_name(str(name))}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_references(item, f"{pointer}/{index}")


def escape_name(name: str) -> str:
    """Return a name as a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def read_use(canonical: str) -> PathUse:
    """Return the keys of the steps that a path names, and True if it reads the item of a loop.

    Raise WrongPath if a root is not followed by `inputs`, by `steps` and a key, or by `item` or `index`.
    """
    tokens = [token for token in TOKEN.findall(canonical.removeprefix("strict ")) if not token.isspace()]
    steps: set[str] = set()
    is_of_item = False
    for place, token in enumerate(tokens):
        if token == "$":  # noqa: S105 - the root of a path
            names = _names_after(tokens, place)
            if names[:1] == ["steps"] and len(names) > 1:
                steps.add(names[1])
            elif names[:1] in OF_ITEM:
                is_of_item = True
            elif names[:1] != ["inputs"]:
                raise WrongPath("must begin with $.inputs or $.steps.KEY")
    return PathUse(frozenset(steps), is_of_item)


def _names_after(tokens: list[str], place: int) -> list[str]:
    """Return the names that directly follow a root, at most two."""
    names = []
    for dot, name in zip(tokens[place + 1 : place + 5 : 2], tokens[place + 2 : place + 5 : 2], strict=False):
        if dot != "." or name[0] != '"':
            break
        names.append(json.loads(name))
    return names


def ancestors(needs: Mapping[str, Sequence[str]]) -> Callable[[str, str], bool]:
    """Return a function of two steps. It returns True if the second depends on the first, directly or not.

    `needs` must have no cycle. Sets of steps are stored as bits of integers, because 10,000 steps may each have 10,000
    ancestors.
    """
    bit_of = {key: 1 << place for place, key in enumerate(needs)}
    before: dict[str, int] = {}
    for key in TopologicalSorter(needs).static_order():
        before[key] = 0
        for on in needs[key]:
            before[key] |= before[on] | bit_of[on]
    return lambda first, second: bool(first in bit_of and before[second] & bit_of[first])
