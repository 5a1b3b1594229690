"""Rows that a test commits are deleted before the next test."""

from liveness.models import Instance
from liveness.services import maintenance
from tests.support.emptying import empty_database


def test_no_maintenance_that_has_been_is_left(transactional_db):
    before = Instance.objects.values().get()
    maintenance.enter_maintenance("operator:me", "a new disk")
    maintenance.exit_maintenance("operator:me", "")
    assert Instance.objects.values().get() != before
    empty_database()
    assert Instance.objects.values().get() == before
