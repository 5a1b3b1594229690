"""A start changes no index of its attempt: live is what has not finished, whatever its state."""

from django.db import migrations, models

from controlplane.core.model_fields import BuildIndex, BuildUnique, RemoveIndex, RemoveUnique

IS_LIVE = models.Q(finished_at__isnull=True)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("jobs", "0032_cheaper_attempts")]
    operations = [
        BuildUnique(
            model_name="attempt",
            constraint=models.UniqueConstraint(condition=IS_LIVE, fields=("job",), name="attempt_live_once"),
        ),
        BuildIndex(
            model_name="attempt",
            index=models.Index(condition=IS_LIVE, fields=["server"], name="attempt_live_of_server"),
        ),
        BuildIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(interrupted_at__isnull=False),
                fields=["interrupted_at"],
                name="attempt_interrupted_at",
            ),
        ),
        RemoveUnique(model_name="attempt", name="attempt_one_live"),
        RemoveIndex(model_name="attempt", name="attempt_live_on_server"),
        RemoveIndex(model_name="attempt", name="attempt_interrupted"),
    ]
