"""The span of a job's last attempt, to which the next one links."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0027_restarts'),
    ]

    operations = [
        migrations.AddField(
            model_name='workerjob',
            name='attempt_traceparent',
            field=models.TextField(null=True, help_text='The span of its last attempt that began, where its worker makes spans.'),
        ),
    ]
