"""Executions are found by their state and by their name, latest first."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('jobs', '0006_activity'),
    ]

    operations = [
        BuildIndex(
            model_name='execution',
            index=models.Index(fields=['state', 'id'], name='execution_by_state'),
        ),
        BuildIndex(
            model_name='execution',
            index=models.Index(fields=['name', 'id'], name='execution_by_name'),
        ),
    ]
