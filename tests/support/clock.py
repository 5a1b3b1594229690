"""The database's clock, set by a test: a function that PostgreSQL finds before its own."""

from django.db import connection

CLOCK = """
CREATE SCHEMA IF NOT EXISTS test_clock;
CREATE TABLE IF NOT EXISTS test_clock.shift (by interval NOT NULL);
INSERT INTO test_clock.shift SELECT '0' WHERE NOT EXISTS (SELECT FROM test_clock.shift);
CREATE OR REPLACE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp() + by FROM test_clock.shift';
"""


class Clock:
    """Moves the clock that every statement of the product reads. Undone with the test's transaction."""

    def advance(self, seconds: float) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE test_clock.shift SET by = by + make_interval(secs => %s)", [seconds])
