"""What a start and an end cost: no index of attempts looks at their state, each page has room for a new version of all
that is on it, and transitions are judged after a row was written, so that it is not locked for that."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0031_lost_attempts"), ("liveness", "0023_server_cordon_ends")]
    operations = [
        migrations.AddField(
            model_name="attempt",
            name="interrupted_at",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(state__in=["RELEASED", "REQUEUED", "RESUBMITTED"], then="finished_at")
                ),
                help_text="When it ended and its job did not.",
                output_field=models.DateTimeField(null=True),
            ),
        ),
        migrations.RunSQL("ALTER TABLE jobs_attempt SET (fillfactor = 50)", migrations.RunSQL.noop),
        pgtrigger.migrations.RemoveTrigger(
            model_name='attempt',
            name='legal_transition',
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='execution',
            name='legal_transition',
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='workerjob',
            name='legal_transition',
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='attempt',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('CLAIMED', 'CANCELLED'), ('CLAIMED', 'FAILED'), ('CLAIMED', 'RELEASED'), ('CLAIMED', 'REQUEUED'), ('CLAIMED', 'RUNNING'), ('RUNNING', 'CANCELLED'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('RUNNING', 'RESUBMITTED')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='3ec674948dfcb37938c753fdf4e817d858fa9762', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_178ac', table='jobs_attempt', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='execution',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('RUNNING', 'CANCELLING'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('CANCELLING', 'CANCELLED')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='acddf8536d2f830e440485ebff9d157c2b9e1e62', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_4a80f', table='jobs_execution', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('BLOCKED', 'CANCELLED'), ('BLOCKED', 'PENDING'), ('BLOCKED', 'SKIPPED'), ('PENDING', 'CANCELLED'), ('PENDING', 'CLAIMED'), ('PENDING', 'EXPIRED'), ('PENDING', 'FAILED'), ('PENDING', 'RUNNING'), ('CLAIMED', 'CANCELLED'), ('CLAIMED', 'FAILED'), ('CLAIMED', 'PENDING'), ('CLAIMED', 'RUNNING'), ('RUNNING', 'CANCELLED'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('RUNNING', 'PENDING')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='6fdde0cd0d1a0e50998ec6d8556f09e2150a4c0e', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_8e8e3', table='jobs_workerjob', when='AFTER')),
        ),
    ]
