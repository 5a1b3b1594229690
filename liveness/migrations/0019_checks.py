"""What a liveness check asks of all servers is answered by those few that it may concern."""

from django.db import migrations, models
from django.db.models import Q

from liveness import states
from liveness.states import ServerType


class Migration(migrations.Migration):
    dependencies = [("liveness", "0018_namespaces")]
    operations = [
        migrations.AddIndex(
            model_name="server",
            index=models.Index(
                fields=["id"],
                name="server_may_be_lost",
                condition=~Q(state__in=sorted(states.ALIVE)) | Q(drain_until_observed__isnull=False),
            ),
        ),
        migrations.AddIndex(
            model_name="server",
            index=models.Index(fields=["token"], name="server_is_no_worker", condition=~Q(type=ServerType.WORKER)),
        ),
    ]
