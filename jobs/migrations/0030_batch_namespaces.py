"""Of which namespaces a batch is, and which user began it: a token may have the name of another, or of a user."""

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
        migrations.AddField(
            "batch",
            "user_key",
            models.TextField(null=True, help_text="Of the user who began it on the pages. Null: a token did."),
        ),
    ]
