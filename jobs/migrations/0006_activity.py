"""Reports that were refused are found by when they were."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0005_quarantine'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='latereport',
            index=models.Index(fields=['at'], name='latereport_by_time'),
        ),
    ]
