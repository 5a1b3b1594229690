"""Maintenance of one cluster; maintenance that ends by itself."""

from django.db import migrations, models

import controlplane.core.model_fields


class Migration(migrations.Migration):
    dependencies = [("liveness", "0019_checks")]
    operations = [
        migrations.AddField(
            model_name="instance",
            name="maintenance_until",
            field=models.DateTimeField(null=True, help_text="The check after it ends it. Null: an operator does."),
        ),
        migrations.CreateModel(
            name="ClusterMaintenance",
            fields=[
                ("cluster", models.TextField(primary_key=True, serialize=False)),
                ("since", models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ("until", models.DateTimeField(null=True, help_text="As in `Instance`.")),
                ("by", models.TextField()),
                ("note", models.TextField(db_default="")),
            ],
            options={"default_permissions": ()},
        ),
    ]
