"""A start changes no index of its attempt: live is what has not finished, whatever its state."""

from django.db import migrations, models

IS_LIVE = models.Q(finished_at__isnull=True)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0032_cheaper_attempts")]
    operations = [
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(condition=IS_LIVE, fields=("job",), name="attempt_live_once"),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(condition=IS_LIVE, fields=["server"], name="attempt_live_of_server"),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(interrupted_at__isnull=False),
                fields=["interrupted_at"],
                name="attempt_interrupted_at",
            ),
        ),
        migrations.RemoveConstraint(model_name="attempt", name="attempt_one_live"),
        migrations.RemoveIndex(model_name="attempt", name="attempt_live_on_server"),
        migrations.RemoveIndex(model_name="attempt", name="attempt_interrupted"),
    ]
