"""What failed lately is found by when, and what a job was resubmitted as by that job."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0015_checkpoints")]
    operations = [
        migrations.AddIndex(
            model_name="workerjob",
            index=models.Index(fields=["finished_at"], name="job_failed", condition=models.Q(state="FAILED")),
        ),
        migrations.AddIndex(
            model_name="workerjob",
            index=models.Index(
                fields=["resubmission_of", "id"],
                name="job_resubmission",
                condition=models.Q(resubmission_of__isnull=False),
            ),
        ),
    ]
