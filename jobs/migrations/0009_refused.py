"""Waiting jobs that a worker refused are found among all that wait."""

import jobs.states
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('jobs', '0008_evaluations'),
        ('liveness', '0008_keeps_jobs'),
    ]

    operations = [
        AddIndexConcurrently(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING']), models.Q(('refused_by', []), _negated=True)), fields=['id'], name='job_refused'),
        ),
    ]
