"""What the pages and the API read of jobs is found by an index, however many have ended."""

import jobs.states
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0003_executions'),
        ('liveness', '0003_storage'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('state__in', [jobs.states.AttemptState['RELEASED'], jobs.states.AttemptState['REQUEUED'], jobs.states.AttemptState['RESUBMITTED']])), fields=['finished_at'], name='attempt_interrupted'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(fields=['state', 'id'], name='job_by_state'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING'])), fields=['available_at'], name='job_waiting'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('kind', jobs.states.JobKind['TRIGGER'])), fields=['id'], name='job_of_trigger'),
        ),
    ]
