"""When maintenance last ended: workers that were sent away for it have some time to come back."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("liveness", "0023_server_cordon_ends")]
    operations = [
        migrations.AddField(
            model_name="instance",
            name="maintenance_ended_observed",
            field=models.FloatField(
                help_text="The observed clock when some last ended, that of a cluster as well. Null: none has.", null=True
            ),
        ),
    ]
