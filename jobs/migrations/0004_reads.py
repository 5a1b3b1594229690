"""What the pages and the API read of jobs is found by an index, however many have ended."""

import jobs.states
from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('jobs', '0003_executions'),
        ('liveness', '0003_storage'),
    ]

    operations = [
        BuildIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('state__in', [jobs.states.AttemptState['RELEASED'], jobs.states.AttemptState['REQUEUED'], jobs.states.AttemptState['RESUBMITTED']])), fields=['finished_at'], name='attempt_interrupted'),
        ),
        BuildIndex(
            model_name='workerjob',
            index=models.Index(fields=['state', 'id'], name='job_by_state'),
        ),
        BuildIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING'])), fields=['available_at'], name='job_waiting'),
        ),
        BuildIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('kind', jobs.states.JobKind['TRIGGER'])), fields=['id'], name='job_of_trigger'),
        ),
    ]
