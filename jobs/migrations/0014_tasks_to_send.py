"""Celery tasks that are to be sent again are found by the token of their workers, at each heartbeat of one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0013_celery_tasks'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('send_requested_at__isnull', False)), fields=['owner'], name='job_to_send'),
        ),
    ]
