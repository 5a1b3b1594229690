"""Celery tasks are jobs that a broker gives out; those that are not worth one are counted."""

import jobs.states
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0012_waiting_of_owner'),
        ('liveness', '0015_instances'),
    ]

    operations = [
        migrations.CreateModel(
            name='TaskTally',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('server_id', models.UUIDField()),
                ('counter', models.UUIDField(help_text='Id of the process that counts: another process begins at 0.')),
                ('name', models.TextField()),
                ('completed', models.BigIntegerField(db_default=0)),
                ('failed', models.BigIntegerField(db_default=0)),
                ('retried', models.BigIntegerField(db_default=0)),
                ('lost', models.BigIntegerField(db_default=0)),
                ('seconds', models.FloatField(db_default=0, help_text='That the code of all of them ran.')),
            ],
            options={
                'default_permissions': (),
                'constraints': [
                    models.UniqueConstraint(fields=('server_id', 'counter', 'name'), name='tasktally_once'),
                ],
            },
        ),
        migrations.AddField(
            model_name='workerjob',
            name='send_requested_at',
            field=models.DateTimeField(help_text='When somebody asked for a Celery task to be sent again; a worker does it.', null=True),
        ),
        migrations.RemoveConstraint(
            model_name='workerjob',
            name='job_kind',
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', [jobs.states.JobKind['CELERY'], jobs.states.JobKind['TASK'], jobs.states.JobKind['TRIGGER']])), name='job_kind'),
        ),
    ]
