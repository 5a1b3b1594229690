"""The last loss of a server is found at once."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("liveness", "0016_token_is_good")]
    operations = [
        migrations.AddIndex(
            model_name="serverevent",
            index=models.Index(
                fields=["at"],
                name="serverevent_of_loss",
                condition=models.Q(to_state__in=["DISCONNECTED", "ERROR"], action=""),
            ),
        ),
    ]
