"""Celery tasks that are to be sent again are found by the token of their workers, at each heartbeat of one."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('jobs', '0013_celery_tasks'),
    ]

    operations = [
        BuildIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('send_requested_at__isnull', False)), fields=['owner'], name='job_to_send'),
        ),
    ]
