"""Jobs in quarantine, and reports that were refused, are found by an index."""

import jobs.states
from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('jobs', '0005_quarantine'),
    ]

    operations = [
        BuildIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('dismissed_at__isnull', True), ('error__code__in', ('RESUBMISSIONS_EXHAUSTED', 'WORKER_CRASHED')), ('state', jobs.states.JobState['FAILED'])), fields=['id'], name='job_in_quarantine'),
        ),
        BuildIndex(
            model_name='latereport',
            index=models.Index(fields=['at'], name='latereport_by_time'),
        ),
    ]
