"""What failed lately is found by when."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0015_checkpoints")]
    operations = [
        migrations.AddIndex(
            model_name="workerjob",
            index=models.Index(fields=["finished_at"], name="job_failed", condition=models.Q(state="FAILED")),
        ),
    ]
