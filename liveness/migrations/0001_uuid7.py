"""UUIDs that sort by age (RFC 9562, version 7): PostgreSQL has had them since 18 only."""

from django.db import migrations

UUID7 = """
CREATE FUNCTION uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                placing substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid
$$
"""


class Migration(migrations.Migration):
    operations = [migrations.RunSQL(UUID7, "DROP FUNCTION uuid7()")]
