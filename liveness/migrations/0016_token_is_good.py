"""Whether an API token is good, asked by a function: a statement that need not know takes no lock on the tokens."""

from django.db import migrations

TOKEN_IS_GOOD = """
CREATE FUNCTION token_is_good(token uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM liveness_apitoken t
         WHERE t.id = token AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()));
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("liveness", "0015_instances")]
    operations = [migrations.RunSQL(TOKEN_IS_GOOD, "DROP FUNCTION token_is_good(uuid)")]
