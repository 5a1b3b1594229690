"""The queue that a claim reads is one of its namespace. Until the index is there, the one before it serves."""

from django.db import migrations, models

from jobs.states import JobState


class Migration(migrations.Migration):
    dependencies = [("jobs", "0023_namespaces")]
    operations = [
        migrations.AddIndex(
            model_name="workerjob",
            index=models.Index(
                "namespace",
                "required_tags",
                models.F("priority").desc(),
                "available_at",
                "id",
                name="job_to_claim_in_namespace",
                condition=models.Q(state=JobState.PENDING),
            ),
        ),
        migrations.RemoveIndex(model_name="workerjob", name="job_to_claim"),
    ]
