"""The name of a trigger is one of its namespace, not of the whole control plane."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0039_all_namespaces'),
    ]

    operations = [
        migrations.AlterField(
            model_name='trigger',
            name='name',
            field=models.TextField(),
        ),
        migrations.AddConstraint(
            model_name='trigger',
            constraint=models.UniqueConstraint(fields=('namespace', 'name'), name='trigger_name_once'),
        ),
    ]
