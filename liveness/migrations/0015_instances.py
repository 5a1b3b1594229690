"""Servers are found by the id that their process chose."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('liveness', '0014_event_subject_reads'),
    ]

    operations = [
        BuildIndex(
            model_name='server',
            index=models.Index(fields=['instance_id'], name='server_of_instance'),
        ),
    ]
