from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.client import Client, session
from tests.support.scripted import Scripted


@pytest.fixture
def plane() -> Iterator[Scripted]:
    plane = Scripted()
    yield plane
    plane.close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses between calls instead of waiting."""
    asked: list[float] = []
    monkeypatch.setattr(session, "pause_for", lambda seconds: asked.append(seconds) if seconds else None)
    return asked


@pytest.fixture
def client(plane: Scripted, pauses: list[float]) -> Iterator[Client]:
    with Client(plane.url, "secret") as client:
        yield client
