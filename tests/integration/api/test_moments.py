"""Moments and numbers are read as PostgreSQL keeps them, however fast."""

from datetime import UTC, datetime

import pytest
from django.db import DataError
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.database import connection
from controlplane.core.json_bodies import read_json

pytestmark = pytest.mark.django_db


def select(sql, *params):
    with connection.cursor() as cursor:
        cursor.execute(f"select {sql}", params)
        return cursor.fetchone()[0]


@given(st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.just(UTC)))
def test_each_moment_is_read_as_it_was_written_and_in_utc(moment):
    read = select("%s::timestamptz", moment)
    assert read == moment
    assert read.tzinfo is UTC


def test_a_moment_is_read_right_whatever_the_time_zone_of_the_session_is():
    moment = datetime(2026, 3, 29, 1, 30, 0, 5, tzinfo=UTC)
    try:
        for zone in ("Europe/Zurich", "America/New_York", "UTC"):
            select("set_config('timezone', %s, false)", zone)
            assert select("%s::timestamptz", moment) == moment
    finally:
        select("set_config('timezone', 'UTC', false)")


@pytest.mark.parametrize("beyond", ["infinity", "-infinity", "10000-01-01 00:00:00+00", "0044-03-15 12:00:00 BC"])
def test_a_moment_that_python_does_not_have_is_an_error_and_no_other_moment(beyond):
    with pytest.raises(DataError):
        select("%s::timestamptz", beyond)


@pytest.mark.parametrize("number", [2**63, -(10**40), 12345678901234567, 1.5, 1e300, 0.1234567890123456, 7])
def test_a_number_is_read_from_json_as_it_is_kept(number):
    assert read_json(f'{{"n": [{number!r}]}}') == {"n": [number]}
    assert type(read_json(repr(number))) is type(number)
