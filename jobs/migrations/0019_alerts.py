"""Incidents, the messages that tell of them, and what is muted."""

import controlplane.core.model_fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0018_ended_jobs'),
    ]

    operations = [
        migrations.CreateModel(
            name='AlertMute',
            fields=[
                ('rule', models.TextField(help_text='`all`: every rule.', primary_key=True, serialize=False)),
                ('until', models.DateTimeField()),
                ('by', models.TextField()),
                ('note', models.TextField(db_default='')),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('rule', models.TextField()),
                ('subject', models.TextField(db_default='', help_text='A cluster or a type of server; empty: the whole instance.')),
                ('summary', models.TextField()),
                ('details', models.JSONField(db_default={})),
                ('opened_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('seen_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='When it was found last.')),
                ('announced_at', models.DateTimeField(help_text='Null: nobody was told, for its rule was muted.', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['ended_at'], name='incident_by_end')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('rule', 'subject'), name='incident_open_once')],
            },
        ),
        migrations.CreateModel(
            name='AlertMessage',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('event', models.TextField(help_text='opened, ended or test')),
                ('channel', models.TextField(help_text='webhook, email or apprise, and which of them.')),
                ('payload', models.JSONField()),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('next_try_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='Null: it was sent, or given up.', null=True)),
                ('tries', models.IntegerField(db_default=0)),
                ('sent_at', models.DateTimeField(null=True)),
                ('error', models.TextField(db_default='', help_text='Of the last try.')),
                ('incident', models.ForeignKey(help_text='Null: a test.', null=True, on_delete=django.db.models.deletion.CASCADE, to='jobs.incident')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(condition=models.Q(('next_try_at__isnull', False)), fields=['next_try_at'], name='alertmessage_due')],
                'constraints': [models.UniqueConstraint(fields=('incident', 'event', 'channel'), name='alertmessage_once')],
            },
        ),
    ]
