"""Python's collector of reference cycles, tuned for the control plane's own processes.

A project around the control plane, and the agent's library, keep Python's own settings.
"""

import gc
import itertools

ALLOCATIONS = 60_000
"""New objects that survive between two collections; Python's own value is 700.

A list of a thousand jobs is created and dropped without reaching it. Pages are collected after each response.
"""
FULL_EVERY = 100
"""Pages between two collections of all generations."""

pages = itertools.count(1)


def collect_seldom() -> None:
    """Make automatic collections rare.

    Otherwise Python scans Django's modules again and again while importing them, which takes a fifth of the start.
    While a list of a thousand jobs is read, collections take a tenth of the call.
    """
    gc.set_threshold(ALLOCATIONS, *gc.get_threshold()[1:])


def keep_what_is_imported() -> None:
    """Exclude all imported modules from further collections."""
    gc.collect()
    gc.freeze()


def collect_after_page() -> None:
    """Collect what a page left behind. This takes half a millisecond.

    Otherwise the garbage of twenty pages delays a later page by more than that page takes.
    """
    number = next(pages)
    gc.collect(1 if number % FULL_EVERY else 2)
    if number == FULL_EVERY:
        # This excludes what the first pages imported. Only once, because cycles of running requests would stay forever.
        gc.freeze()
