"""Servers that are lost with their running jobs, under NEVER, are found without a look at all that ever were."""

import liveness.states
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('liveness', '0007_timetable'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='server',
            index=models.Index(condition=models.Q(('worker_task_restart_strategy', liveness.states.RestartStrategy['NEVER']), models.Q(('state__in', [liveness.states.ServerState['CREATED'], liveness.states.ServerState['MAINTENANCE'], liveness.states.ServerState['RUNNING']]), _negated=True)), fields=['id'], name='server_keeps_jobs'),
        ),
    ]
