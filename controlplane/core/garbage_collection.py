"""Python's collector of reference cycles, tuned for the control plane's own processes.

A host project and the agent's library keep Python's own settings.
"""

import gc
import itertools

ALLOCATIONS = 60_000
"""Number of new surviving objects after which Python collects. Python's default is 700.

A list of a thousand jobs stays below this number. After each page there is a collection anyway.
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
    """Collect the garbage of a page. This takes half a millisecond.

    Otherwise the garbage of twenty pages would more than double the time of a later page.
    """
    number = next(pages)
    gc.collect(1 if number % FULL_EVERY else 2)
    if number == FULL_EVERY:
        # Exclude the modules that the first pages imported. Do it once, because cycles of running requests would stay
        # forever.
        gc.freeze()
