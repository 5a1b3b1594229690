"""Executions are found by their state and by their name, latest first."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0006_activity'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(fields=['state', 'id'], name='execution_by_state'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(fields=['name', 'id'], name='execution_by_name'),
        ),
    ]
