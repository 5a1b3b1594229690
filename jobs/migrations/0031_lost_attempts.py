"""What the lost servers of the last incident held is found by index, not among all their attempts."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("jobs", "0030_batch_namespaces")]
    operations = [
        BuildIndex(
            model_name="attempt",
            index=models.Index(
                fields=["server", "finished_at"], name="attempt_lost", condition=models.Q(ended_by="liveness")
            ),
        ),
    ]
