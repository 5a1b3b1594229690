"""Of which namespaces a batch is: names of tokens are not unique, so that a batch is not known by its actor alone."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0029_history_of_clusters")]
    operations = [
        migrations.AddField(
            "batch",
            "namespaces",
            ArrayField(models.TextField(), null=True, help_text="Those that whoever began it could reach. Null: all."),
        ),
    ]
