"""Waiting jobs that a worker refused are found among all that wait; who asks for an evaluation has its key once."""

import jobs.states
from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex, BuildUnique


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('jobs', '0008_evaluations'),
        ('liveness', '0008_keeps_jobs'),
    ]

    operations = [
        BuildIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING']), models.Q(('refused_by', []), _negated=True)), fields=['id'], name='job_refused'),
        ),
        BuildUnique(
            model_name='triggerslot',
            constraint=models.UniqueConstraint(
                condition=models.Q(('key__isnull', False)), fields=('trigger', 'key'), name='triggerslot_once_by_key',
            ),
        ),
    ]
