"""Limits within a test: its transaction never commits, so nothing would settle them."""

import pytest

from jobs.services import limit_rules, limits


@pytest.fixture
def settled(monkeypatch):
    """Settle limits at once, and park the jobs of a new rule at once, within the transaction of the test."""
    monkeypatch.setattr(limits, "settle_soon", limits.settle_rechecks)
    monkeypatch.setattr(limit_rules, "park_soon", limit_rules.park_waiting_jobs)
