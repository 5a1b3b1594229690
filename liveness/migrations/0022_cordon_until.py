"""A cordon, and a drain, that ends by itself."""

from django.db import migrations, models
from django.db.models import Q

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("liveness", "0021_cluster_brakes")]
    operations = [
        migrations.AddField(
            model_name="server",
            name="cordon_until",
            field=models.DateTimeField(
                null=True, help_text="The check after it lifts cordon and drain. Null: never."
            ),
        ),
        BuildIndex(
            model_name="server",
            index=models.Index(
                fields=["cordon_until"], name="server_cordon_ends", condition=Q(cordon_until__isnull=False)
            ),
        ),
    ]
