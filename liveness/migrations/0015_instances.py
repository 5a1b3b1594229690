"""Servers are found by the id that their process chose."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('liveness', '0014_event_subject_reads'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='server',
            index=models.Index(fields=['instance_id'], name='server_of_instance'),
        ),
    ]
