"""The trace in which a job was submitted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('jobs', '0021_names'),
    ]

    operations = [
        migrations.AddField(
            model_name='workerjob',
            name='traceparent',
            field=models.TextField(null=True, help_text='The trace in which it was submitted, as W3C has it.'),
        ),
    ]
