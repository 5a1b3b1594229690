"""A control plane with another key is refused."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("liveness", "0027_first_check")]
    operations = [
        migrations.AddField(
            model_name="instance",
            name="key_fingerprint",
            field=models.TextField(help_text="Of the key that signs. Null: none has signed yet.", null=True),
        ),
    ]
