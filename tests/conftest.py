"""Fixtures and settings for all tests."""

import gc


def pytest_collection_finish() -> None:
    # Imported modules stay until the end. Unfrozen, they cost a sixteenth of the time in garbage collection. With the
    # default threshold the rest costs another twentieth.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
