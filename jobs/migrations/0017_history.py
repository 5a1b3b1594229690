"""What happened, by the minute and by the hour, for charts."""

import jobs.history
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0016_failed_jobs'),
        ('liveness', '0016_token_is_good'),
    ]

    operations = [
        migrations.CreateModel(
            name='HistoryEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.TextField()),
                ('at', models.DateTimeField(help_text='When the minute or the hour began.')),
                ('dimension', models.TextField(db_default='')),
                ('key', models.TextField(db_default='', help_text='The tag or action; empty: those beyond the most frequent.')),
                ('completed', models.BigIntegerField(db_default=0)),
                ('failed', models.BigIntegerField(db_default=0)),
                ('cancelled', models.BigIntegerField(db_default=0)),
                ('expired', models.BigIntegerField(db_default=0)),
                ('skipped', models.BigIntegerField(db_default=0)),
                ('waited', models.JSONField(db_default={}, help_text='How many waited how long, by bin (jobs/history.py).')),
                ('took', models.JSONField(db_default={}, help_text='How many ran how long, by bin.')),
                ('lost', models.BigIntegerField(db_default=0, help_text='Servers that were lost.')),
                ('moved', models.BigIntegerField(db_default=0, help_text='Running attempts that were resubmitted.')),
                ('waiting', models.FloatField(help_text='Jobs that waited when last looked. Null: nobody looked.', null=True)),
                ('running', models.FloatField(null=True)),
                ('slots_used', models.FloatField(help_text='Of alive workers.', null=True)),
                ('slots_free', models.FloatField(help_text='Of workers that may get work.', null=True)),
            ],
            options={
                'verbose_name_plural': 'history',
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='HistoryWatermark',
            fields=[
                ('id', models.SmallIntegerField(db_default=1, primary_key=True, serialize=False)),
                ('closed_until', models.DateTimeField(help_text='What ended before is counted for good.', null=True)),
                ('counted_until', models.DateTimeField(null=True)),
                ('counted_xid', models.BigIntegerField(help_text='Transactions that began later ended nothing before counted_until.', null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.AddConstraint(
            model_name='historyentry',
            constraint=models.CheckConstraint(condition=models.Q(('span__in', [jobs.history.Span['HOUR'], jobs.history.Span['MINUTE']])), name='history_span'),
        ),
        migrations.AddConstraint(
            model_name='historyentry',
            constraint=models.CheckConstraint(condition=models.Q(('dimension', ''), ('dimension__in', [jobs.history.Dimension['TAG'], jobs.history.Dimension['ACTION']]), _connector='OR'), name='history_dimension'),
        ),
        migrations.AddConstraint(
            model_name='historyentry',
            constraint=models.UniqueConstraint(fields=('span', 'dimension', 'at', 'key'), name='history_once'),
        ),
        migrations.AddConstraint(
            model_name='historywatermark',
            constraint=models.CheckConstraint(condition=models.Q(('id', 1)), name='history_one_watermark'),
        ),
    ]
