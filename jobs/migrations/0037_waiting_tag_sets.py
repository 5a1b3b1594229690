"""Find the sets of tags that the waiting jobs of an owner have: one index probe for each set."""

from django.db import migrations, models

from jobs.states import JobState


class Migration(migrations.Migration):
    dependencies = [("jobs", "0036_code_may_run")]
    operations = [
        migrations.AddIndex(
            model_name="workerjob",
            index=models.Index(
                fields=["owner", "required_tags"],
                name="job_waiting_tags_of_owner",
                condition=models.Q(state=JobState.PENDING),
            ),
        ),
        migrations.RemoveIndex(model_name="workerjob", name="job_waiting_of_owner"),
    ]
