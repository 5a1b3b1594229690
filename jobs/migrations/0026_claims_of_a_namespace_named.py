"""The index of the claims of a namespace has the name of the one that it replaces."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0025_batches")]
    operations = [
        migrations.RenameIndex(
            model_name="workerjob", old_name="job_to_claim_in_namespace", new_name="job_to_claim"
        ),
    ]
