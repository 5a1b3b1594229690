"""Each job, execution and trigger is of one namespace."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0022_traceparent"), ("liveness", "0018_namespaces")]
    operations = [
        migrations.AddField(
            model_name="workerjob",
            name="namespace",
            field=models.TextField(db_default="default", help_text="Only workers of it get this job."),
        ),
        migrations.AddField(
            model_name="execution",
            name="namespace",
            field=models.TextField(db_default="default", help_text="Only workers of it get its steps."),
        ),
        migrations.AddField(
            model_name="trigger",
            name="namespace",
            field=models.TextField(db_default="default", help_text="Of its evaluations, and what they begin."),
        ),
    ]
