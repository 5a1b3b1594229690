"""Room on each page for HOT updates of jobs and attempts."""

from django.db import migrations

STORAGE = """
ALTER TABLE jobs_attempt SET (fillfactor = 50);
ALTER TABLE jobs_workerjob SET (fillfactor = 70);
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0002_functions")]
    operations = [migrations.RunSQL(STORAGE, migrations.RunSQL.noop)]
