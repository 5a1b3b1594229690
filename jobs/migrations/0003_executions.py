"""Executions of several steps, and triggers that start them."""

import controlplane.core.model_fields
import django.contrib.postgres.fields
import django.db.models.deletion
import jobs.states
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0002_storage'),
        ('liveness', '0003_storage'),
    ]

    operations = [
        migrations.CreateModel(
            name='Execution',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('root_id', models.UUIDField(help_text='The execution that began the tree of children it is in; often itself.')),
                ('name', models.TextField()),
                ('key', models.TextField(null=True)),
                ('fingerprint', models.BinaryField(help_text='SHA-256 of what was submitted.')),
                ('definition', models.JSONField(help_text='What was submitted.')),
                ('inputs', models.JSONField(db_default={}, help_text='Payload of the steps that have none of their own.')),
                ('state', models.TextField(db_default='RUNNING')),
                ('open_steps', models.IntegerField(help_text='Steps whose end has not been passed on. Hooks do not count.')),
                ('passed_on', models.BooleanField(db_default=False, help_text='Its end has ended the step it is the run of.')),
                ('timeout_seconds', models.FloatField(null=True)),
                ('started_observed', models.FloatField(db_default=controlplane.core.model_fields.ObservedNow())),
                ('cancel_requested_at', models.DateTimeField(null=True)),
                ('error', models.JSONField(null=True)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('finished_at', models.DateTimeField(null=True)),
            ],
            options={
                'permissions': [('cancel_execution', 'Can cancel executions'), ('rerun_execution', 'Can run executions again')],
            },
        ),
        migrations.CreateModel(
            name='ExecutionEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('code', models.TextField()),
                ('step', models.TextField(null=True)),
                ('server_id', models.UUIDField(null=True)),
                ('line', models.TextField(help_text='For people.')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='StepDependency',
            fields=[
                ('pk', models.CompositePrimaryKey('depends_on_id', 'step_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('depends_on', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='jobs.workerjob')),
                ('step', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='dependencies', to='jobs.workerjob')),
            ],
        ),
        migrations.CreateModel(
            name='Trigger',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('name', models.TextField(unique=True)),
                ('cron', models.TextField(blank=True, null=True)),
                ('interval_seconds', models.FloatField(blank=True, null=True)),
                ('timezone', models.TextField(default='UTC')),
                ('action', models.JSONField()),
                ('payload', models.JSONField(blank=True, null=True)),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, db_default=[], size=None)),
                ('enabled', models.BooleanField(default=True)),
                ('missed', models.TextField(choices=[('fire_once', 'fire_once'), ('skip', 'skip')], default='fire_once')),
                ('execution', models.JSONField(help_text='The execution it starts.')),
                ('next_slot_at', models.DateTimeField(help_text='Null: none, it is not enabled.', null=True)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
            ],
            options={
                'permissions': [('evaluate_trigger', 'Can have triggers evaluated now')],
            },
        ),
        migrations.CreateModel(
            name='TriggerSlot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slot', models.DateTimeField()),
                ('outcome', models.TextField()),
                ('by', models.TextField(db_default='', help_text='Who asked for it; empty: the schedule.')),
                ('note', models.TextField(db_default='', help_text='For people.')),
            ],
            options={
                'ordering': ['-slot'],
            },
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='workerjob',
            name='legal_transition',
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='workerjob',
            name='legal_beginning',
        ),
        migrations.RemoveConstraint(
            model_name='workerjob',
            name='job_state',
        ),
        migrations.RemoveConstraint(
            model_name='workerjob',
            name='job_finished_at_its_end',
        ),
        migrations.RemoveConstraint(
            model_name='workerjob',
            name='job_held_while_live',
        ),
        migrations.AddField(
            model_name='workerjob',
            name='continue_on_failure',
            field=models.BooleanField(db_default=False, help_text='Steps that depend on it run even if it fails.'),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='is_hook',
            field=models.BooleanField(db_default=False, help_text='It runs only when its execution has failed.'),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='passed_on',
            field=models.BooleanField(db_default=False, help_text='Its end has moved its execution, or its trigger, on.'),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='position',
            field=models.IntegerField(help_text='Its place in the definition; hooks come last.', null=True),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='step',
            field=models.TextField(help_text='Its key in its execution.', null=True),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='waits_for',
            field=models.IntegerField(db_default=0, help_text='Steps that it depends on and whose end it has not heard.'),
        ),
        migrations.AlterField(
            model_name='workerjob',
            name='owner',
            field=models.ForeignKey(db_index=False, help_text="Null: a trigger's.", null=True, on_delete=django.db.models.deletion.PROTECT, to='liveness.apitoken'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('BLOCKED', 'CANCELLED'), ('BLOCKED', 'PENDING'), ('BLOCKED', 'SKIPPED'), ('PENDING', 'CANCELLED'), ('PENDING', 'CLAIMED'), ('PENDING', 'EXPIRED'), ('PENDING', 'FAILED'), ('PENDING', 'RUNNING'), ('CLAIMED', 'CANCELLED'), ('CLAIMED', 'FAILED'), ('CLAIMED', 'PENDING'), ('CLAIMED', 'RUNNING'), ('RUNNING', 'CANCELLED'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('RUNNING', 'PENDING')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='c8e4340df4ba4b789a42bf6fd6e33f730713740b', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_8e8e3', table='jobs_workerjob', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='legal_beginning', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.state NOT IN ('BLOCKED', 'PENDING'))", func="RAISE EXCEPTION 'illegal first state %', NEW.state USING ERRCODE = 'check_violation';", hash='873e5a35a0f2ad756f74e639b1efd6d0f7fcfd03', operation='INSERT', pgid='pgtrigger_legal_beginning_0c5c4', table='jobs_workerjob', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='execution',
            name='owner',
            field=models.ForeignKey(db_index=False, help_text="Null: a trigger's.", null=True, on_delete=django.db.models.deletion.PROTECT, to='liveness.apitoken'),
        ),
        migrations.AddField(
            model_name='execution',
            name='parent_step',
            field=models.OneToOneField(db_constraint=False, help_text='The step that it is the run of.', null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='child', to='jobs.workerjob'),
        ),
        migrations.AddField(
            model_name='execution',
            name='rerun_of',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='jobs.execution'),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='execution',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='jobs.execution'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('passed_on', False), ('state__in', [jobs.states.JobState['CANCELLED'], jobs.states.JobState['COMPLETED'], jobs.states.JobState['EXPIRED'], jobs.states.JobState['FAILED'], jobs.states.JobState['SKIPPED']]), models.Q(('execution__isnull', False), ('kind', jobs.states.JobKind['TRIGGER']), _connector='OR')), fields=['execution'], name='job_to_pass_on'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['BLOCKED'])), fields=['execution'], name='job_blocked'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', [jobs.states.JobState['BLOCKED'], jobs.states.JobState['CANCELLED'], jobs.states.JobState['CLAIMED'], jobs.states.JobState['COMPLETED'], jobs.states.JobState['EXPIRED'], jobs.states.JobState['FAILED'], jobs.states.JobState['PENDING'], jobs.states.JobState['RUNNING'], jobs.states.JobState['SKIPPED']])), name='job_state'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', False), ('state__in', [jobs.states.JobState['CANCELLED'], jobs.states.JobState['COMPLETED'], jobs.states.JobState['EXPIRED'], jobs.states.JobState['FAILED'], jobs.states.JobState['SKIPPED']])), models.Q(models.Q(('state__in', [jobs.states.JobState['CANCELLED'], jobs.states.JobState['COMPLETED'], jobs.states.JobState['EXPIRED'], jobs.states.JobState['FAILED'], jobs.states.JobState['SKIPPED']]), _negated=True), ('finished_at__isnull', True)), _connector='OR'), name='job_finished_at_its_end'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('attempt_id__isnull', False), ('state__in', [jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['RUNNING']])), models.Q(models.Q(('state__in', [jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['RUNNING']]), _negated=True), ('attempt_id__isnull', True)), models.Q(('action__type', 'execution'), ('attempt_id__isnull', True), ('state', jobs.states.JobState['RUNNING'])), _connector='OR'), name='job_held_while_live'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.UniqueConstraint(condition=models.Q(('execution__isnull', False)), fields=('execution', 'step'), name='job_step_once'),
        ),
        migrations.AddField(
            model_name='executionevent',
            name='execution',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='events', to='jobs.execution'),
        ),
        migrations.AddConstraint(
            model_name='trigger',
            constraint=models.CheckConstraint(condition=models.Q(('missed__in', [jobs.states.Missed['FIRE_ONCE'], jobs.states.Missed['SKIP']])), name='trigger_missed'),
        ),
        migrations.AddConstraint(
            model_name='trigger',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cron__isnull', True), ('interval_seconds__gt', 0)), models.Q(('cron__isnull', False), ('interval_seconds__isnull', True)), _connector='OR'), name='trigger_has_one_schedule'),
        ),
        migrations.AddField(
            model_name='execution',
            name='trigger',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='executions', to='jobs.trigger'),
        ),
        migrations.AddField(
            model_name='triggerslot',
            name='execution',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='jobs.execution'),
        ),
        migrations.AddField(
            model_name='triggerslot',
            name='job',
            field=models.OneToOneField(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='slot', to='jobs.workerjob'),
        ),
        migrations.AddField(
            model_name='triggerslot',
            name='trigger',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='jobs.trigger'),
        ),
        migrations.AddIndex(
            model_name='executionevent',
            index=models.Index(fields=['execution', 'id'], name='executionevent_of_execution'),
        ),
        migrations.AddConstraint(
            model_name='executionevent',
            constraint=models.CheckConstraint(condition=models.Q(('code__in', [jobs.states.EventCode['EXECUTION_REPAIRED'], jobs.states.EventCode['EXECUTION_TIMEOUT'], jobs.states.EventCode['HOOK_FAILED'], jobs.states.EventCode['JOB_REQUEUED'], jobs.states.EventCode['JOB_RESUBMITTED'], jobs.states.EventCode['NO_MATCHING_WORKER'], jobs.states.EventCode['RETRY'], jobs.states.EventCode['STEP_SKIPPED'], jobs.states.EventCode['STEP_TIMEOUT'], jobs.states.EventCode['WORKER_CRASHED']])), name='executionevent_code'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(fields=['root_id'], name='execution_of_tree'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(fields=['owner', 'id'], name='execution_of_owner'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state__in', [jobs.states.ExecutionState['CANCELLED'], jobs.states.ExecutionState['COMPLETED'], jobs.states.ExecutionState['FAILED']]), _negated=True), fields=['id'], name='execution_not_over'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('parent_step__isnull', False), ('passed_on', False), ('state__in', [jobs.states.ExecutionState['CANCELLED'], jobs.states.ExecutionState['COMPLETED'], jobs.states.ExecutionState['FAILED']])), fields=['root_id'], name='execution_to_pass_on'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', [jobs.states.ExecutionState['CANCELLED'], jobs.states.ExecutionState['CANCELLING'], jobs.states.ExecutionState['COMPLETED'], jobs.states.ExecutionState['FAILED'], jobs.states.ExecutionState['RUNNING']])), name='execution_state'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.UniqueConstraint(condition=models.Q(('key__isnull', False)), fields=('owner', 'key'), name='execution_key_once'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', False), ('state__in', [jobs.states.ExecutionState['CANCELLED'], jobs.states.ExecutionState['COMPLETED'], jobs.states.ExecutionState['FAILED']])), models.Q(models.Q(('state__in', [jobs.states.ExecutionState['CANCELLED'], jobs.states.ExecutionState['COMPLETED'], jobs.states.ExecutionState['FAILED']]), _negated=True), ('finished_at__isnull', True)), _connector='OR'), name='execution_finished_at_its_end'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='execution',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('RUNNING', 'CANCELLING'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('CANCELLING', 'CANCELLED')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='fed01c31254d571477bebea38de11a1305973e8d', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_4a80f', table='jobs_execution', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='execution',
            trigger=pgtrigger.compiler.Trigger(name='legal_beginning', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.state NOT IN ('RUNNING'))", func="RAISE EXCEPTION 'illegal first state %', NEW.state USING ERRCODE = 'check_violation';", hash='d476cfb61f5d72167e44c7029fff063860e31112', operation='INSERT', pgid='pgtrigger_legal_beginning_6013c', table='jobs_execution', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='triggerslot',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', [jobs.states.SlotOutcome['EVALUATING'], jobs.states.SlotOutcome['FAILED'], jobs.states.SlotOutcome['FIRED'], jobs.states.SlotOutcome['MISSED'], jobs.states.SlotOutcome['NOT_FIRED']])), name='triggerslot_outcome'),
        ),
        migrations.AddConstraint(
            model_name='triggerslot',
            constraint=models.UniqueConstraint(fields=('trigger', 'slot'), name='triggerslot_once'),
        ),
        migrations.AddConstraint(
            model_name='triggerslot',
            constraint=models.UniqueConstraint(condition=models.Q(('outcome', jobs.states.SlotOutcome['EVALUATING'])), fields=('trigger',), name='triggerslot_one_in_flight'),
        ),
    ]
