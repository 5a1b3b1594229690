"""Waiting jobs that a worker refused are found among all that wait; who asks for an evaluation has its key once."""

import jobs.states
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0008_evaluations'),
        ('liveness', '0008_keeps_jobs'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING']), models.Q(('refused_by', []), _negated=True)), fields=['id'], name='job_refused'),
        ),
        migrations.AddConstraint(
            model_name='triggerslot',
            constraint=models.UniqueConstraint(
                condition=models.Q(('key__isnull', False)), fields=('trigger', 'key'), name='triggerslot_once_by_key',
            ),
        ),
    ]
