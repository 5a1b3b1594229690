"""The order of tests that mostly wait: the longer one may take, the sooner it begins, beside the others."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def may_take(item: pytest.Item) -> float:
        said = item.get_closest_marker("timeout")
        return said.args[0] if said else 0

    items.sort(key=may_take, reverse=True)
