"""Signals, and steps that wait for them. A RUNNING step may be SKIPPED."""

import importlib

import controlplane.core.model_fields
import django.db.models.deletion
import jobs.states
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

WAIT_PROBLEM = """
-- Return what is wrong with the values that a step which waits got from its execution, or null. `paths` has the path of
-- each by its JSON pointer.
CREATE OR REPLACE FUNCTION wait_problem(payload jsonb, paths jsonb) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    place record;
    found text;
    kind text;
BEGIN
    FOR place IN SELECT substr(key, 2) AS name, path FROM jsonb_each_text(paths) AS each(key, path) LOOP
        found := payload ->> place.name;
        kind := jsonb_typeof(payload -> place.name);
        IF place.name = 'seconds' AND (CASE WHEN kind = 'number' THEN found::numeric NOT BETWEEN 0 AND 31622400 ELSE true END) THEN
            RETURN format('The value at %s is %s, but seconds must be a number from 0 to 31622400 (366 days)',
                          place.path, left((payload -> place.name)::text, 100));
        END IF;
        IF place.name = 'until' THEN
            BEGIN
                IF kind = 'string' AND found ~ '^\\d{4}-\\d\\d-\\d\\d[T ]\\d\\d:\\d\\d(:\\d\\d([.]\\d+)?)?(Z|[+-]\\d\\d(:?\\d\\d)?)$'
                   AND found::timestamptz IS NOT NULL THEN
                    CONTINUE;
                END IF;
            EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format OR invalid_time_zone_displacement_value THEN
                NULL;
            END;
            RETURN format('The value at %s is %s, but until must be a time with its zone, like 2026-12-24T18:00:00Z',
                          place.path, left((payload -> place.name)::text, 100));
        END IF;
        IF place.name = 'signal' AND (kind <> 'string' OR found !~ '^[^/[:cntrl:]]{1,200}$') THEN
            RETURN format('The value at %s is %s, but signal must be a text of 1 to 200 characters without a slash',
                          place.path, left((payload -> place.name)::text, 100));
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
"""
WAIT_PROBLEM_BEFORE = importlib.import_module("jobs.migrations.0047_waits").WAIT_PROBLEM.replace(
    "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"
)


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0047_waits'),
        ('liveness', '0037_heartbeats_by_day'),
    ]

    operations = [
        migrations.CreateModel(
            name='Signal',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('namespace', models.TextField(db_default='default', help_text='Only steps of this namespace get it.')),
                ('name', models.TextField()),
                ('body', models.JSONField(null=True)),
                ('key', models.TextField(null=True)),
                ('is_delivered', models.BooleanField(db_default=False, help_text='True: no step waits for it that began to wait before.')),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
            ],
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='workerjob',
            name='legal_transition',
        ),
        migrations.AddField(
            model_name='workerjob',
            name='wait_signal',
            field=models.TextField(help_text='Name of the signal that it waits for, or waited for.', null=True),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='wait_timeout_observed',
            field=models.FloatField(help_text='Observed time at which its wait times out.', null=True),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['RUNNING']), ('wait_timeout_observed__isnull', False)), fields=['wait_timeout_observed'], name='job_wait_timeout'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['RUNNING']), ('wait_signal__isnull', False)), fields=['namespace', 'wait_signal'], name='job_waits_for_signal'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('BLOCKED', 'CANCELLED'), ('BLOCKED', 'FAILED'), ('BLOCKED', 'PENDING'), ('BLOCKED', 'SKIPPED'), ('PENDING', 'CANCELLED'), ('PENDING', 'CLAIMED'), ('PENDING', 'EXPIRED'), ('PENDING', 'FAILED'), ('PENDING', 'RUNNING'), ('CLAIMED', 'CANCELLED'), ('CLAIMED', 'FAILED'), ('CLAIMED', 'PENDING'), ('CLAIMED', 'RUNNING'), ('RUNNING', 'CANCELLED'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('RUNNING', 'PENDING'), ('RUNNING', 'SKIPPED')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='955ba743ddfa1bc1a1fd8e12765af950cc8e8bd1', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_8e8e3', table='jobs_workerjob', when='AFTER')),
        ),
        migrations.AddField(
            model_name='signal',
            name='owner',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='liveness.apitoken'),
        ),
        migrations.AddIndex(
            model_name='signal',
            index=models.Index(fields=['namespace', 'name', 'created_at'], name='signal_by_name'),
        ),
        migrations.AddIndex(
            model_name='signal',
            index=models.Index(condition=models.Q(('is_delivered', False)), fields=['id'], name='signal_to_deliver'),
        ),
        migrations.AddConstraint(
            model_name='signal',
            constraint=models.UniqueConstraint(condition=models.Q(('key__isnull', False)), fields=('owner', 'key'), name='signal_key_once'),
        ),
        migrations.RunSQL(WAIT_PROBLEM, WAIT_PROBLEM_BEFORE),
    ]
