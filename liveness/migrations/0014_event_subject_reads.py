"""What was done by hand to a job or an execution is found by what it was done to."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('liveness', '0013_event_subjects'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='serverevent',
            index=models.Index(condition=models.Q(('subject_type', 'server'), _negated=True), fields=['subject_type', 'subject_id', 'id'], name='serverevent_of_subject'),
        ),
    ]
