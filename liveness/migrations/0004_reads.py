"""Who ended last is found by an index."""

import liveness.states
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('liveness', '0003_storage'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='server',
            index=models.Index(condition=models.Q(('state', liveness.states.ServerState['INACTIVE'])), fields=['state_changed_at'], name='server_inactive'),
        ),
    ]
