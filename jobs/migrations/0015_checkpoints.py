"""What the code of a job keeps for the job's next attempt."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0014_tasks_to_send'),
    ]

    operations = [
        migrations.AddField(
            model_name='workerjob',
            name='checkpoint',
            field=models.JSONField(null=True, help_text='What its code kept for its next attempt.'),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='checkpoint_at',
            field=models.DateTimeField(null=True),
        ),
    ]
