"""The steps of an execution as a graph: whether they can be run at all, and in which order. Django-free."""

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

STEPS_LIMIT = 10_000
WORDS_LIMIT = 10
"""Keys that a message names at most."""


def dependency_problems(steps: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with steps that depend on each other by key, in sentences that name them."""
    unknown = [f"{key!r} depends on {on!r}" for key, needs in steps.items() for on in needs if on not in steps]
    if unknown:
        return [f"No step has the key that is depended on: {join_words(unknown)}."]
    try:
        TopologicalSorter(steps).prepare()
    except CycleError as error:
        return [f"The steps depend on each other in a ring: {join_words([repr(key) for key in error.args[1]], ' → ')}."]
    return []


def repeated_keys(keys: Sequence[str]) -> list[str]:
    """Keys that are there more than once."""
    return [key for key, count in Counter(keys).items() if count > 1]


def join_words(words: Sequence[str], between: str = ", ") -> str:
    """Some words for a message, not all when they are many."""
    more = [f"… and {len(words) - WORDS_LIMIT} more"] if len(words) > WORDS_LIMIT else []
    return between.join([*words[:WORDS_LIMIT], *more])


def step_ranks(steps: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many steps stand before each, on the longest way to it: the columns of a drawing."""
    order = TopologicalSorter(steps).static_order()
    rank_of: dict[str, int] = {}
    for key in order:
        rank_of[key] = 1 + max((rank_of[on] for on in steps[key]), default=-1)
    return rank_of
