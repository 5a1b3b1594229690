"""Each token and each server is of one namespace."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("liveness", "0017_losses")]
    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="namespace",
            field=models.TextField(db_default="default", help_text="Whose work it is for; it reaches no other's."),
        ),
        migrations.AddField(
            model_name="server",
            name="namespace",
            field=models.TextField(db_default="default", help_text="That of its token: it gets no other's jobs."),
        ),
    ]
