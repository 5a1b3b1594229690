"""What a liveness check asks of all servers is answered by those few that it may concern."""

from django.db import migrations, models
from django.db.models import Q

from controlplane.core.model_fields import BuildIndex
from liveness import states
from liveness.states import ServerType


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("liveness", "0018_namespaces")]
    operations = [
        BuildIndex(
            model_name="server",
            index=models.Index(
                fields=["id"],
                name="server_may_be_lost",
                condition=~Q(state__in=sorted(states.ALIVE)) | Q(drain_until_observed__isnull=False),
            ),
        ),
        BuildIndex(
            model_name="server",
            index=models.Index(fields=["token"], name="server_is_no_worker", condition=~Q(type=ServerType.WORKER)),
        ),
    ]
