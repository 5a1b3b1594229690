"""Python's collector of reference cycles, in processes that are the control plane's own (never a project's, or an
agent's library)."""

import gc
import itertools

ALLOCATIONS = 60_000
"""Of objects that stayed, between two collections; Python's own is 700. A list of a thousand jobs comes and goes below
it, and pages are collected after."""
FULL_EVERY = 100
"""Pages between two collections of all that there is."""

pages = itertools.count(1)


def collect_seldom() -> None:
    """Else what Django consists of is looked through again and again while it is imported, a fifth of the start; and a
    list of a thousand jobs while it is read, a tenth of the call."""
    gc.set_threshold(ALLOCATIONS, *gc.get_threshold()[1:])


def keep_what_is_imported() -> None:
    """What a process consists of when it begins to serve stays: no collection looks through it again."""
    gc.collect()
    gc.freeze()


def collect_after_page() -> None:
    """What a page leaves behind goes at once, in half a millisecond: left to itself, what twenty have left holds up the
    next for longer than it takes."""
    number = next(pages)
    gc.collect(1 if number % FULL_EVERY else 2)
    if number == FULL_EVERY:
        gc.freeze()  # what the first of them imported: once, for of what is under way cycles would stay for ever
