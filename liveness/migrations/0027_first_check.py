"""Before its first check nothing is credited: a control plane that was just set up thought all servers heard as much
later, by 1.5 intervals of the default settings."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("liveness", "0026_who_acted")]
    operations = [
        migrations.AlterField(
            model_name="clock",
            name="credit",
            field=models.FloatField(
                db_default=0,
                help_text="The most it advances at once: 1.5 check intervals, and nothing before the first check.",
            ),
        ),
        migrations.RunSQL("UPDATE liveness_clock SET credit = 0 WHERE tick = 0", migrations.RunSQL.noop),
    ]
