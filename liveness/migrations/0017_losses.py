"""The last loss of a server is found at once."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("liveness", "0016_token_is_good")]
    operations = [
        BuildIndex(
            model_name="serverevent",
            index=models.Index(
                fields=["at"],
                name="serverevent_of_loss",
                condition=models.Q(to_state__in=["DISCONNECTED", "ERROR"], action=""),
            ),
        ),
    ]
