"""Functions that defaults of columns and statements call. They are plpgsql where they read a table of a later migration."""

from django.db import migrations

UUID7 = """
-- Return a UUID that sorts by age (RFC 9562, version 7). PostgreSQL has such a function only since version 18.
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
-- Return the observed time now. It stamps what happens; what is judged is judged by the reading alone.
CREATE FUNCTION observed_now() RETURNS float8 LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT reading + least(greatest(extract(epoch FROM clock_timestamp() - advanced_at), 0), credit)
              FROM liveness_clock);
END
$$;
"""
TOKEN_IS_GOOD = """
-- Return whether an API token may be used. A statement that calls it takes no lock on the tokens.
CREATE FUNCTION token_is_good(token uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM liveness_apitoken t
         WHERE t.id = token AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()));
END
$$
"""


class Migration(migrations.Migration):
    operations = [
        migrations.RunSQL(UUID7, "DROP FUNCTION uuid7()"),
        migrations.RunSQL(OBSERVED_NOW, "DROP FUNCTION observed_now()"),
        migrations.RunSQL(TOKEN_IS_GOOD, "DROP FUNCTION token_is_good(uuid)"),
    ]
