"""Who ended last is found by an index."""

import liveness.states
from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('liveness', '0003_storage'),
    ]

    operations = [
        BuildIndex(
            model_name='server',
            index=models.Index(condition=models.Q(('state', liveness.states.ServerState['INACTIVE'])), fields=['state_changed_at'], name='server_inactive'),
        ),
    ]
