"""Counters that outlive what is counted, and what the probes tell of the check and the clock."""

import controlplane.core.model_fields
import django.contrib.postgres.fields
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('liveness', '0004_reads'),
    ]

    operations = [
        migrations.CreateModel(
            name='Tally',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField()),
                ('labels', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], size=None)),
                ('number', models.FloatField()),
            ],
            options={
                'verbose_name_plural': 'tallies',
                'default_permissions': (),
            },
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='server',
            name='one_event_per_transition',
        ),
        migrations.AddField(
            model_name='clock',
            name='moved_at',
            field=models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='When the reading last grew.'),
        ),
        migrations.AddField(
            model_name='clock',
            name='took',
            field=models.FloatField(help_text='Seconds that it took.', null=True),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='server',
            trigger=pgtrigger.compiler.Trigger(name='one_event_per_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.state IS DISTINCT FROM NEW.state)', func="\n                    INSERT INTO liveness_serverevent\n                        (at, server_id, server_name, from_state, to_state, actor, reason)\n                    VALUES (NEW.state_changed_at, NEW.id, NEW.name, OLD.state, NEW.state,\n                            NEW.state_actor, NEW.state_reason);\n                    INSERT INTO liveness_tally (name, labels, number)\n                    VALUES ('transitions', ARRAY[OLD.state, NEW.state, split_part(NEW.state_actor, ':', 1)], 1);\n                    RETURN NULL;\n                ", hash='9475772377b492488f665ec30e75e793be77f9a2', operation='UPDATE OF "state"', pgid='pgtrigger_one_event_per_transition_2d03d', table='liveness_server', when='AFTER')),
        ),
    ]
