"""What happened is found by when it did, and by the name of the server, however much has happened."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('liveness', '0005_tally'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='serverevent',
            index=models.Index(fields=['at'], name='serverevent_by_time'),
        ),
        migrations.AddIndex(
            model_name='serverevent',
            index=models.Index(fields=['server_name'], name='serverevent_by_name'),
        ),
    ]
