"""What happens is counted by cluster as well."""

from django.db import migrations, models
from django.db.models import Q

from jobs.history import Dimension


class Migration(migrations.Migration):
    dependencies = [("jobs", "0028_attempt_traceparent")]
    operations = [
        migrations.RemoveConstraint("historyentry", "history_dimension"),
        migrations.AddConstraint(
            "historyentry",
            models.CheckConstraint(
                condition=Q(dimension="") | Q(dimension__in=list(Dimension)), name="history_dimension"
            ),
        ),
        migrations.AlterField(
            "historyentry",
            "key",
            models.TextField(
                db_default="", help_text="The tag, action or cluster; empty: those beyond the most frequent."
            ),
        ),
    ]
