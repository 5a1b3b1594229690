"""Fixtures of acceptance tests, and their order. Tests that may take longest begin first, because they mostly wait.

A failed test shows the logs of its processes.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.celery_fleet import CeleryFleet, celery_fleet
from tests.support.celery_plane import CeleryPlane
from tests.support.processes import Fleet
from tests.support.services import Redis

LONG_MODULES = ("browser", "django_tasks", "docs_commands", "fast_recovery", "fence", "standalone")
"""Modules of long tests that have no time limit of their own."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def may_take(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        return marker.args[0] if marker else 600 * item.path.stem.removeprefix("test_").startswith(LONG_MODULES)

    items.sort(key=may_take, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        fleets = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Fleet)]
        report.sections += [("The processes", running.logs()) for running in fleets]
    return report


@pytest.fixture
def plane() -> Iterator[CeleryPlane]:
    """Start the stand-in control plane for Celery workers.

    A module that needs a real control plane has its own fixture of this name.
    """
    plane = CeleryPlane()
    yield plane
    plane.close()


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with Redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path, redis_server: Redis, plane: CeleryPlane) -> Iterator[CeleryFleet]:
    """Workers of a protected application, on Redis and beside the stand-in."""
    with celery_fleet(tmp_path, redis_server.url, plane.url) as fleet:
        fleet.redis.flushall()
        yield fleet
