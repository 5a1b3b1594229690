"""Room on each page for HOT updates of what heartbeats and state changes touch."""

from django.db import migrations

STORAGE = """
ALTER TABLE jobs_attempt SET (fillfactor = 60);
ALTER TABLE jobs_workerjob SET (fillfactor = 70);
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_tables")]
    operations = [migrations.RunSQL(STORAGE, migrations.RunSQL.noop)]
