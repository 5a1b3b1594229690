"""What failed lately is found by when, and what a job was resubmitted as by that job."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("jobs", "0015_checkpoints")]
    operations = [
        BuildIndex(
            model_name="workerjob",
            index=models.Index(fields=["finished_at"], name="job_failed", condition=models.Q(state="FAILED")),
        ),
        BuildIndex(
            model_name="workerjob",
            index=models.Index(
                fields=["resubmission_of", "id"],
                name="job_resubmission",
                condition=models.Q(resubmission_of__isnull=False),
            ),
        ),
    ]
