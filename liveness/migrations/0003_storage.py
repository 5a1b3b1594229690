"""Room on each page for HOT updates of what a heartbeat changes, and the one row of the clock."""

from django.db import migrations

STORAGE = """
ALTER TABLE liveness_server SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
INSERT INTO liveness_clock (tick_at, swept_at, last_swept_at) VALUES ('epoch', 'epoch', 'epoch');
"""


class Migration(migrations.Migration):
    dependencies = [("liveness", "0002_tables")]
    operations = [migrations.RunSQL(STORAGE, "TRUNCATE liveness_clock")]
