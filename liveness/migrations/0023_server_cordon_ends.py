"""Servers whose cordon ends by itself are found by an index."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("liveness", "0022_cordon_until")]
    operations = [
        migrations.AddIndex(
            model_name="server",
            index=models.Index(
                fields=["cordon_until"], name="server_cordon_ends", condition=Q(cordon_until__isnull=False)
            ),
        ),
    ]
