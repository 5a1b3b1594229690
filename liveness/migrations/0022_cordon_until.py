"""A cordon, and a drain, that ends by itself."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("liveness", "0021_cluster_brakes")]
    operations = [
        migrations.AddField(
            model_name="server",
            name="cordon_until",
            field=models.DateTimeField(
                null=True, help_text="The check after it lifts cordon and drain. Null: never."
            ),
        ),
    ]
