from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_py

from tests.support.celery_plane import CeleryPlane
from tests.support.services import Redis


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with Redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(redis_server: Redis) -> Iterator[redis_py.Redis]:
    with redis_py.Redis.from_url(redis_server.url) as client:
        client.flushall()
        yield client


@pytest.fixture
def plane() -> Iterator[CeleryPlane]:
    plane = CeleryPlane()
    yield plane
    plane.close()
