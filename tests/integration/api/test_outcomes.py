"""Statements decide whether a lost connection may have changed something."""

import pytest
from django.db import connection


@pytest.mark.parametrize(
    ("statement", "may_change"),
    [
        ("select 1", False),
        ("  SELECT state FROM liveness_server", False),
        ("prepare one as update liveness_clock set took = took", False),
        ("select 1 for update; update liveness_clock set took = took", True),
        ("with changed as (update liveness_clock set took = took returning 1) select * from changed", True),
        ("update liveness_clock set took = took", True),
    ],
)
def test_what_is_sent_is_a_read_only_if_all_of_it_is(db, statement, may_change):
    connection._has_uncommitted_changes = False
    with connection.cursor() as cursor:
        cursor.execute(statement)
    assert connection._has_uncommitted_changes is may_change
