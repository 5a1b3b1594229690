"""What happened is found by when it did, and by the name of the server, however much has happened."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('liveness', '0005_tally'),
    ]

    operations = [
        BuildIndex(
            model_name='serverevent',
            index=models.Index(fields=['at'], name='serverevent_by_time'),
        ),
        BuildIndex(
            model_name='serverevent',
            index=models.Index(fields=['server_name'], name='serverevent_by_name'),
        ),
    ]
