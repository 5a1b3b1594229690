"""How many jobs of an owner wait is counted in an index, at each of its submissions."""

import jobs.states
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0011_late_reports'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING'])), fields=['owner'], name='job_waiting_of_owner'),
        ),
    ]
