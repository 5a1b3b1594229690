"""Two functions that the tables' defaults call."""

from django.db import migrations

UUID7 = """
-- UUIDs that sort by age (RFC 9562, version 7): PostgreSQL has had them since 18 only.
CREATE FUNCTION uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                placing substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid
$$;
"""
OBSERVED_NOW = """
-- Observed time at this moment, for stamping what happens; what is judged is judged by the reading alone.
-- In plpgsql, because the table does not exist yet.
CREATE FUNCTION observed_now() RETURNS float8 LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT reading + least(greatest(extract(epoch FROM clock_timestamp() - advanced_at), 0), credit)
              FROM liveness_clock);
END
$$;
"""


class Migration(migrations.Migration):
    operations = [
        migrations.RunSQL(UUID7, "DROP FUNCTION uuid7()"),
        migrations.RunSQL(OBSERVED_NOW, "DROP FUNCTION observed_now()"),
    ]
