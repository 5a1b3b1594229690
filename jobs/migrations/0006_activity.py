"""Jobs in quarantine, and reports that were refused, are found by an index."""

import jobs.states
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0005_quarantine'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('dismissed_at__isnull', True), ('error__code__in', ('RESUBMISSIONS_EXHAUSTED', 'WORKER_CRASHED')), ('state', jobs.states.JobState['FAILED'])), fields=['id'], name='job_in_quarantine'),
        ),
        migrations.AddIndex(
            model_name='latereport',
            index=models.Index(fields=['at'], name='latereport_by_time'),
        ),
    ]
