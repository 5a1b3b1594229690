"""What has ended since the history was counted last is found by an index."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0017_history'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['finished_at'], name='job_ended'),
        ),
    ]
