"""A restart of an execution keeps the steps that had completed: they begin COMPLETED."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0026_claims_of_a_namespace_named'),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='workerjob',
            name='legal_beginning',
        ),
        migrations.AddField(
            model_name='workerjob',
            name='is_kept',
            field=models.BooleanField(db_default=False, help_text='That one had completed: it begins COMPLETED, with its output.'),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='restart_of_id',
            field=models.UUIDField(help_text='The step of an earlier run of its execution that it goes on from.', null=True),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='legal_beginning', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.state NOT IN ('BLOCKED', 'PENDING') AND NOT (NEW.is_kept AND NEW.state = 'COMPLETED'))", func="RAISE EXCEPTION 'illegal first state %', NEW.state USING ERRCODE = 'check_violation';", hash='610dbbd9c5c1d60d74de95dd238cf83df1b49d74', operation='INSERT', pgid='pgtrigger_legal_beginning_0c5c4', table='jobs_workerjob', when='BEFORE')),
        ),
    ]
