"""How many jobs of an owner wait is counted in an index, at each of its submissions."""

import jobs.states
from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('jobs', '0011_late_reports'),
    ]

    operations = [
        BuildIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING'])), fields=['owner'], name='job_waiting_of_owner'),
        ),
    ]
