"""A brake of its own for each namespace, so that no token holds servers of another one."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('liveness', '0030_namespaces_of_old_events'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='brake',
            name='brake_once',
        ),
        migrations.AddField(
            model_name='brake',
            name='namespace',
            field=models.TextField(db_default='default'),
        ),
        migrations.AddConstraint(
            model_name='brake',
            constraint=models.UniqueConstraint(fields=('type', 'namespace', 'cluster'), name='brake_of_namespace_once'),
        ),
    ]
