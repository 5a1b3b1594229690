"""Garbage collection in processes of the control plane."""

import gc
import subprocess
import sys
import weakref

import pytest

from controlplane.serving.answers import answered

SERVES = """
import gc
from controlplane.core.garbage_collection import collect_seldom, keep_what_is_imported
collect_seldom()
keep_what_is_imported()
assert gc.get_threshold()[0] > 20_000, gc.get_threshold()
assert gc.get_freeze_count() > 0
"""


def test_collections_are_rare_and_skip_all_that_was_imported_before_serving():
    subprocess.run([sys.executable, "-c", SERVES], check=True)


@pytest.fixture
def uncollected():
    """Switch off automatic collections."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Shown:
    """Object in a reference cycle, as a request and its response are."""

    def __init__(self):
        self.itself = self


@pytest.mark.parametrize(("kind", "is_left"), [("text/html; charset=utf-8", False), ("application/json", True)])
def test_cycles_of_a_page_are_collected_after_it_and_nothing_else_is_scanned(kind, is_left, uncollected):
    left = []

    class Content(list):
        pass

    def application(environ, start_response):
        content = Content([b"shown"])
        content.shown = Shown()
        left.append(weakref.ref(content.shown))
        start_response("200 OK", [("Content-Type", kind)])
        return content

    assert answered(application, {}).body == b"shown"
    assert (left[0]() is not None) == is_left
