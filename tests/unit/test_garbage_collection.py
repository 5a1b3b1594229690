"""When Python looks for garbage in processes of the control plane."""

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


def test_garbage_is_looked_for_seldom_and_never_in_what_a_process_consists_of_when_it_begins_to_serve():
    subprocess.run([sys.executable, "-c", SERVES], check=True)


@pytest.fixture
def uncollected():
    """Nothing is collected but by whom a test calls."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Shown:
    """What a page holds in a cycle, as a request and what it was answered hold one another."""

    def __init__(self):
        self.itself = self


@pytest.mark.parametrize(("kind", "is_left"), [("text/html; charset=utf-8", False), ("application/json", True)])
def test_what_a_page_leaves_in_cycles_goes_with_it_and_nothing_else_is_looked_through(kind, is_left, uncollected):
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
