"""Evaluations of triggers end: they have a timeout, retries and a priority. Who asks for one has a key."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0007_execution_lists'),
    ]

    operations = [
        migrations.AddField(
            model_name='trigger',
            name='priority',
            field=models.IntegerField(default=0),
        ),
        migrations.AddField(
            model_name='trigger',
            name='timeout_seconds',
            field=models.FloatField(default=300.0, help_text='Of each try of an evaluation.'),
        ),
        migrations.AddField(
            model_name='trigger',
            name='max_retries',
            field=models.IntegerField(default=1, help_text='Of an evaluation that failed.'),
        ),
        migrations.AddField(
            model_name='triggerslot',
            name='key',
            field=models.TextField(help_text='Of who asked for it: the same again finds this one.', null=True),
        ),
    ]
