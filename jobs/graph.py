"""Graph of the steps of an execution: find errors in the dependencies, and the order of the steps.

It needs no Django.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

STEPS_LIMIT = 10_000
WORDS_LIMIT = 10
"""Largest number of keys in a message."""


def dependency_problems(steps: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each error: unknown keys, or a cycle. `steps` maps each key to the keys it depends on."""
    unknown = [f"{key!r} depends on {on!r}" for key, needs in steps.items() for on in needs if on not in steps]
    if unknown:
        return [f"Steps depend on keys that no step has: {join_words(unknown)}."]
    try:
        TopologicalSorter(steps).prepare()
    except CycleError as error:
        return [
            f"The steps depend on each other in a cycle: {join_words([repr(key) for key in error.args[1]], ' → ')}."
        ]
    return []


def repeated_keys(keys: Sequence[str]) -> list[str]:
    """Return the keys that occur more than once."""
    return [key for key, count in Counter(keys).items() if count > 1]


def join_words(words: Sequence[str], between: str = ", ") -> str:
    """Join words for a message. Leave out those beyond WORDS_LIMIT."""
    more = [f"… and {len(words) - WORDS_LIMIT} more"] if len(words) > WORDS_LIMIT else []
    return between.join([*words[:WORDS_LIMIT], *more])


def step_ranks(steps: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the column of each step in a drawing: the number of steps on the longest path before it."""
    order = TopologicalSorter(steps).static_order()
    rank_of: dict[str, int] = {}
    for key in order:
        rank_of[key] = 1 + max((rank_of[on] for on in steps[key]), default=-1)
    return rank_of
