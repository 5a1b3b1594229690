"""A brake of its own for each cluster. Which hold is judged by each check, so the table is made anew."""

from django.db import migrations, models

import controlplane.core.model_fields


class Migration(migrations.Migration):
    dependencies = [("liveness", "0020_cluster_maintenance")]
    operations = [
        migrations.DeleteModel("Brake"),
        migrations.CreateModel(
            name="Brake",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("type", models.TextField()),
                ("cluster", models.TextField(db_default="", help_text="Of which alone; empty: of all clusters.")),
                ("engaged_at", models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ("engaged_observed", models.FloatField()),
                ("silent", models.IntegerField(help_text="How many would be disconnected.")),
                ("alive", models.IntegerField(help_text="Of how many.")),
                ("released_by", models.TextField(null=True)),
                ("release_reason", models.TextField(db_default="")),
            ],
            options={
                "default_permissions": ("view",),
                "constraints": [models.UniqueConstraint(fields=("type", "cluster"), name="brake_once")],
            },
        ),
    ]
