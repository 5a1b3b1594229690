"""Room on each page for HOT updates of what a heartbeat changes, and the rows of the tables with one row."""

from django.db import migrations

STORAGE = """
ALTER TABLE liveness_server SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
INSERT INTO liveness_clock (tick_at) VALUES ('epoch');
INSERT INTO liveness_instance DEFAULT VALUES;
"""


class Migration(migrations.Migration):
    dependencies = [("liveness", "0003_heartbeats")]
    operations = [migrations.RunSQL(STORAGE, "TRUNCATE liveness_clock, liveness_instance")]
