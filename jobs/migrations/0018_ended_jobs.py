"""What has ended since the history was counted last is found by an index."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('jobs', '0017_history'),
    ]

    operations = [
        BuildIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['finished_at'], name='job_ended'),
        ),
    ]
