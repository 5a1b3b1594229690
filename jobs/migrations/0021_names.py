"""What the submitter of a job calls it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0020_groups")]
    operations = [
        migrations.AddField(
            model_name="workerjob",
            name="name",
            field=models.TextField(db_default="", help_text="What its submitter calls it."),
        ),
    ]
