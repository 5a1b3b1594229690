"""What the lost servers of the last incident held is found by index, not among all their attempts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0030_batch_namespaces")]
    operations = [
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                fields=["server", "finished_at"], name="attempt_lost", condition=models.Q(ended_by="liveness")
            ),
        ),
    ]
