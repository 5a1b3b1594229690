"""Claims with floors and a clock of the test."""

from types import SimpleNamespace

import pytest

from jobs.services import claim_floors, claiming, hints
from jobs.services.claim_floors import ClaimFloors


@pytest.fixture
def seconds(monkeypatch):
    """Serve, with floors of its own and a clock of its own: `seconds.now`."""
    seconds = SimpleNamespace(now=100.0, monotonic=lambda: seconds.now)
    floors = ClaimFloors()
    monkeypatch.setattr(claim_floors, "time", seconds)
    monkeypatch.setattr(claiming, "floors", floors)
    monkeypatch.setattr(hints, "floors", floors)
    monkeypatch.setattr(hints.announcer, "enabled", True)
    monkeypatch.setattr(hints.announcer, "_want", lambda: None)
    return seconds
