"""Each batch keeps the namespaces of its items, which decide who sees and stops it."""

import django.contrib.postgres.fields
from django.db import migrations, models


# Of older batches it is not known, but where there is one namespace, or where whoever began them reached few.
FILL = """
    UPDATE jobs_batch SET item_namespaces = coalesce(namespaces, CASE
        WHEN NOT EXISTS (SELECT FROM liveness_apitoken WHERE namespace <> 'default') THEN ARRAY['default'] END)
"""


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0037_waiting_tag_sets'),
        ('liveness', '0018_namespaces'),
    ]

    operations = [
        migrations.AddField(
            model_name='batch',
            name='item_namespaces',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Those of its items. Null: not known; for who reaches all namespaces.', null=True, size=None),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
