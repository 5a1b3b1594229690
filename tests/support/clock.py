"""Database clock that a test sets: a function that PostgreSQL finds before its own."""

from importlib import import_module
from uuid import UUID

from django.db import connection

from liveness.services.heartbeats import ServerHeartbeat, record_heartbeat
from liveness.services.presence import Presence
from liveness.states import ServerState, ServerType

functions = import_module("liveness.migrations.0001_functions")
# The shift is in a row. To replace the function instead would invalidate every plan that uses it. The functions are in
# PL/pgSQL, which plans them once a session. PostgreSQL plans functions in SQL again in every statement.
CLOCK = """
CREATE SCHEMA IF NOT EXISTS test_clock;
CREATE TABLE IF NOT EXISTS test_clock.shift (stands_at timestamptz, by interval NOT NULL);
INSERT INTO test_clock.shift SELECT NULL, '0' WHERE NOT EXISTS (SELECT FROM test_clock.shift);
CREATE OR REPLACE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$ BEGIN
    RETURN (SELECT coalesce(stands_at, pg_catalog.clock_timestamp()) + by FROM test_clock.shift);
END $$;
CREATE SEQUENCE IF NOT EXISTS test_clock.ids;
"""
# Each id is a millisecond later than the previous id, so that rows created at the same time keep their order.
UUID7_OF_PRODUCT = functions.UUID7.replace(
    "CREATE FUNCTION uuid7", "CREATE OR REPLACE FUNCTION test_clock.uuid7_of_product"
)
UUID7 = """
CREATE OR REPLACE FUNCTION public.uuid7() RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$ BEGIN
    IF (SELECT stands_at IS NULL FROM test_clock.shift) THEN
        RETURN test_clock.uuid7_of_product();
    END IF;
    RETURN encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                placing substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
                                           + nextval('test_clock.ids')) FROM 3)
                FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid;
END $$;
"""


class Clock:
    """Clock that every statement of the product reads. Changes end with the transaction, or with `release`."""

    def freeze(self) -> None:
        """Stop the clock. Only the test moves it."""
        with connection.cursor() as cursor:
            cursor.execute("UPDATE test_clock.shift SET stands_at = pg_catalog.clock_timestamp()")
            cursor.execute("SELECT setval('test_clock.ids', 1)")
        self.begin()

    def release(self) -> None:
        """Undo committed changes of a test."""
        with connection.cursor() as cursor:
            cursor.execute("UPDATE test_clock.shift SET stands_at = NULL, by = '0'")

    def begin(self) -> None:
        """Pretend that a check has just run, so that no earlier time counts."""
        with connection.cursor() as cursor:
            cursor.execute("UPDATE liveness_clock SET advanced_at = clock_timestamp(), credit = 15")

    def advance(self, seconds: float) -> None:
        """Move the clock while heartbeats could arrive, so that observed time moves with it."""
        self.step(seconds)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE liveness_clock SET reading = reading + %s,"
                " advanced_at = advanced_at + make_interval(secs => %s)",
                [seconds, seconds],
            )

    def step(self, seconds: float) -> None:
        """Move only the wall clock."""
        with connection.cursor() as cursor:
            cursor.execute("UPDATE test_clock.shift SET by = by + make_interval(secs => %s)", [seconds])


def heartbeats_get_in(witness: bool = True) -> None:
    """Record a heartbeat in which one of the control plane's own processes confirms that heartbeats arrive."""
    own = Presence(ServerType.WEBSERVER, "web")
    own.instance_id = UUID(int=1)
    own.register()
    record_heartbeat(own.token, ServerHeartbeat(ServerState.RUNNING, witness=witness))
