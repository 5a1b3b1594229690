"""Tables of jobs, attempts, executions, triggers and operations of people."""

import controlplane.core.model_fields
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.fields.json
import jobs.history
import jobs.states
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('liveness', '0004_storage'),
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
            name='LimitTurn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.TextField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('number', models.IntegerField()),
                ('worker_slots', models.IntegerField(db_default=1, help_text='Slots of its server that it holds.')),
                ('state', models.TextField(db_default='CLAIMED')),
                ('request_id', models.UUIDField(help_text='Id of the claim, so that a retry returns the same attempts.', null=True)),
                ('claimed_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('started_at', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('heartbeat_at', models.DateTimeField(null=True)),
                ('alive_observed', models.FloatField(db_default=controlplane.core.model_fields.ObservedNow(), help_text='Observed time of its claim, start or last heartbeat.')),
                ('started_observed', models.FloatField(null=True)),
                ('pid', models.IntegerField(null=True)),
                ('progress', models.FloatField(help_text='0 to 1.', null=True)),
                ('message', models.TextField(db_default='')),
                ('error', models.JSONField(null=True)),
                ('ended_by', models.TextField(db_default='', help_text='server, liveness or operator:NAME')),
                ('reason', models.TextField(db_default='')),
                ('interrupted_at', models.GeneratedField(db_persist=True, expression=models.Case(models.When(state__in=[jobs.states.AttemptState['RELEASED'], jobs.states.AttemptState['REQUEUED'], jobs.states.AttemptState['RESUBMITTED']], then='finished_at')), help_text='Time of its end, if its job did not end.', output_field=models.DateTimeField(null=True))),
                ('server', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='attempts', to='liveness.server')),
            ],
        ),
        migrations.CreateModel(
            name='Batch',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('key', models.TextField(help_text='Idempotency key of the form or call.', null=True, unique=True)),
                ('state', models.TextField(db_default='RUNNING')),
                ('operation', models.TextField(help_text='One of OPERATIONS (jobs/services/operator_actions.py).')),
                ('subject_type', models.TextField(help_text='Type of the items: job, execution, trigger or server.')),
                ('label', models.TextField(help_text='Name of the action on the pages.')),
                ('chosen', models.TextField(db_default='', help_text='Description of how the items were chosen.')),
                ('query', models.TextField(db_default='', help_text='Filter as the query string of the list.')),
                ('actor', models.TextField()),
                ('user_key', models.TextField(help_text='Key of the user who started it on the pages. Null: a token did.', null=True)),
                ('namespaces', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Namespaces that the actor had access to. Null: all.', null=True, size=None)),
                ('item_namespaces', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Namespaces of its items. Null: not known; only users of all namespaces see it.', null=True, size=None)),
                ('note', models.TextField(db_default='')),
                ('parameters', models.JSONField(db_default={})),
                ('left_out', models.JSONField(db_default=[], help_text='Numbers of chosen objects to which it did not apply at the start, by reason.')),
                ('total', models.IntegerField()),
                ('done', models.IntegerField(db_default=0)),
                ('refused', models.IntegerField(db_default=0)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('worked_on_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='Time when items were last processed.')),
                ('finished_at', models.DateTimeField(null=True)),
                ('stopped_by', models.TextField(db_default='')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(condition=models.Q(('state', jobs.states.BatchState['RUNNING'])), fields=['worked_on_at'], name='batch_running')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', [jobs.states.BatchState['COMPLETED'], jobs.states.BatchState['RUNNING'], jobs.states.BatchState['STOPPED']])), name='batch_state'), models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', True), ('state', jobs.states.BatchState['RUNNING'])), models.Q(models.Q(('state', jobs.states.BatchState['RUNNING']), _negated=True), ('finished_at__isnull', False)), _connector='OR'), name='batch_finished_at_its_end')],
            },
        ),
        migrations.CreateModel(
            name='HistoryEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.TextField()),
                ('at', models.DateTimeField(help_text='Start of the minute or hour.')),
                ('dimension', models.TextField(db_default='')),
                ('key', models.TextField(db_default='', help_text='Tag, action or cluster; empty: all except the most frequent ones.')),
                ('completed', models.BigIntegerField(db_default=0)),
                ('failed', models.BigIntegerField(db_default=0)),
                ('cancelled', models.BigIntegerField(db_default=0)),
                ('expired', models.BigIntegerField(db_default=0)),
                ('skipped', models.BigIntegerField(db_default=0)),
                ('waited', models.JSONField(db_default={}, help_text='Number of jobs by bin of their waiting time (jobs/history.py).')),
                ('took', models.JSONField(db_default={}, help_text='Number of jobs by bin of their duration.')),
                ('lost', models.BigIntegerField(db_default=0, help_text='Number of lost servers.')),
                ('moved', models.BigIntegerField(db_default=0, help_text='Number of running attempts that were resubmitted.')),
                ('waiting', models.FloatField(help_text='Number of waiting jobs. Null: not counted.', null=True)),
                ('running', models.FloatField(null=True)),
                ('slots_used', models.FloatField(help_text='Used slots of alive workers.', null=True)),
                ('slots_free', models.FloatField(help_text='Free slots of workers that may get work.', null=True)),
            ],
            options={
                'verbose_name_plural': 'history',
                'default_permissions': (),
                'constraints': [models.CheckConstraint(condition=models.Q(('span__in', [jobs.history.Span['HOUR'], jobs.history.Span['MINUTE']])), name='history_span'), models.CheckConstraint(condition=models.Q(('dimension', ''), ('dimension__in', [jobs.history.Dimension['TAG'], jobs.history.Dimension['ACTION'], jobs.history.Dimension['CLUSTER']]), _connector='OR'), name='history_dimension'), models.UniqueConstraint(fields=('span', 'dimension', 'at', 'key'), name='history_once')],
            },
        ),
        migrations.CreateModel(
            name='HistoryWatermark',
            fields=[
                ('id', models.SmallIntegerField(db_default=1, primary_key=True, serialize=False)),
                ('closed_until', models.DateTimeField(help_text='Time up to which the counts are final.', null=True)),
                ('counted_until', models.DateTimeField(null=True)),
                ('counted_xid', models.BigIntegerField(help_text='Transactions with later ids ended no job before counted_until.', null=True)),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='history_one_watermark')],
            },
        ),
        migrations.CreateModel(
            name='Hold',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('kind', models.TextField(help_text='Kind of what it holds, one of HoldOf (jobs/states.py).')),
                ('value', models.TextField(help_text='Name or id of what it holds.')),
                ('namespace', models.TextField(help_text='It holds only work of this namespace. Null: of all.', null=True)),
                ('mode', models.TextField(db_default='pause')),
                ('note', models.TextField(db_default='')),
                ('by', models.TextField()),
                ('key', models.TextField(help_text='Idempotency key of the call that created it.', null=True)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('begun_observed', models.FloatField(db_default=controlplane.core.model_fields.ObservedNow())),
                ('ends_at', models.DateTimeField(help_text='Time at which it ends by itself. Null: an operator ends it.', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_observed', models.FloatField(null=True)),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', [jobs.states.HoldOf['ACTION'], jobs.states.HoldOf['EXECUTION'], jobs.states.HoldOf['LIMIT'], jobs.states.HoldOf['NAMESPACE'], jobs.states.HoldOf['QUEUE'], jobs.states.HoldOf['TAG'], jobs.states.HoldOf['TRIGGER']])), name='hold_kind'), models.CheckConstraint(condition=models.Q(('mode__in', [jobs.states.HoldMode['PAUSE'], jobs.states.HoldMode['REFUSE']])), name='hold_mode'), models.UniqueConstraint(condition=models.Q(('key__isnull', False)), fields=('by', 'key'), name='hold_key_once'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('ended_observed__isnull', True)), models.Q(('ended_at__isnull', False), ('ended_observed__isnull', False)), _connector='OR'), name='hold_end_has_both_times')],
            },
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('rule', models.TextField()),
                ('subject', models.TextField(db_default='', help_text='Cluster or server type; empty: the whole control plane.')),
                ('summary', models.TextField()),
                ('severity', models.TextField(db_default='', help_text='critical, warning or info.')),
                ('url', models.TextField(db_default='', help_text='Address of its page; empty if CONSOLE_URL is not set.')),
                ('details', models.JSONField(db_default={})),
                ('opened_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('seen_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='Time of its last detection.')),
                ('announced_at', models.DateTimeField(help_text='Time when its message was sent, if a channel was set. Null: its rule was muted.', null=True)),
                ('items', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], help_text='Keys of the losses or jobs that messages have named.', size=None)),
                ('updates', models.IntegerField(db_default=0, help_text='Number of messages about further items.')),
                ('updated_at', models.DateTimeField(help_text='Time of the last of these messages.', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['ended_at'], name='incident_by_end')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('rule', 'subject'), name='incident_open_once')],
            },
        ),
        migrations.CreateModel(
            name='LimitBucket',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('namespace', models.TextField(help_text='Namespace of the rule.')),
                ('key', models.TextField()),
                ('tokens', models.FloatField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('namespace', 'key'), name='limitbucket_once')],
            },
        ),
        migrations.CreateModel(
            name='LimitRule',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('namespace', models.TextField(db_default='default')),
                ('pattern', models.TextField(help_text='A key, or `prefix:*`.')),
                ('running', models.IntegerField(help_text='Slots of a key that may be held at once.', null=True)),
                ('starts', models.IntegerField(help_text='Starts of jobs with a key in `per_seconds`.', null=True)),
                ('per_seconds', models.FloatField(null=True)),
                ('note', models.TextField(db_default='')),
                ('by', models.TextField(db_default='', help_text='Actor of the last change.')),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('changed_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('namespace', 'pattern'), name='limitrule_once'), models.CheckConstraint(condition=models.Q(models.Q(('per_seconds__isnull', True), ('starts__isnull', True)), models.Q(('per_seconds__isnull', False), ('starts__isnull', False)), _connector='OR'), name='limitrule_starts_in_seconds')],
                'indexes': [models.Index(condition=models.Q(('pattern__regex', '^(action|tag|namespace):')), fields=['pattern'], name='limitrule_by_content')],
            },
        ),
        migrations.CreateModel(
            name='LimitSlot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.TextField()),
                ('namespace', models.TextField(help_text='Namespace of the job.')),
                ('attempt_id', models.UUIDField()),
                ('amount', models.IntegerField()),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['key'], name='limitslot_of_key'), models.Index(fields=['attempt_id'], name='limitslot_of_attempt')],
            },
        ),
        migrations.CreateModel(
            name='TakenAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('attempt_id', models.UUIDField()),
                ('job_id', models.UUIDField(db_index=True, help_text='Waiting job: its own, or one that repeats it.')),
                ('server_id', models.UUIDField(db_index=True)),
                ('had_begun', models.BooleanField(help_text='True: its code may still run, so the next attempt waits.')),
                ('told_observed', models.FloatField(help_text='Observed time of the first response to its server that named it as lost.', null=True)),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('attempt_id', 'job_id'), name='takenattempt_of_job_once')],
            },
        ),
        migrations.CreateModel(
            name='TaskTally',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('server_id', models.UUIDField()),
                ('counter', models.UUIDField(help_text='Id of the counting process. Each process starts at 0.')),
                ('name', models.TextField()),
                ('completed', models.BigIntegerField(db_default=0)),
                ('failed', models.BigIntegerField(db_default=0)),
                ('retried', models.BigIntegerField(db_default=0)),
                ('lost', models.BigIntegerField(db_default=0)),
                ('seconds', models.FloatField(db_default=0, help_text='Seconds that their code ran in all.')),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('server_id', 'counter', 'name'), name='tasktally_once')],
            },
        ),
        migrations.CreateModel(
            name='Trigger',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('namespace', models.TextField(db_default='default', help_text='Namespace of its jobs and executions.')),
                ('cron', models.TextField(blank=True, null=True)),
                ('interval_seconds', models.FloatField(blank=True, null=True)),
                ('timezone', models.TextField(default='UTC')),
                ('start_at', models.DateTimeField(blank=True, help_text='No slot is before this time.', null=True)),
                ('end_at', models.DateTimeField(blank=True, help_text='No slot is after this time.', null=True)),
                ('jitter_seconds', models.FloatField(default=0.0, help_text='Each slot starts late by a part of this, always the same part.')),
                ('action', models.JSONField(blank=True, help_text='Null: its execution starts without an evaluation.', null=True)),
                ('payload', models.JSONField(blank=True, null=True)),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, db_default=[], size=None)),
                ('priority', models.IntegerField(default=0)),
                ('worker_slots', models.IntegerField(default=1, help_text='Slots of its worker that an evaluation uses.')),
                ('timeout_seconds', models.FloatField(default=300.0, help_text='Timeout of each attempt of an evaluation.')),
                ('max_retries', models.IntegerField(default=1, help_text='Number of retries of a failed evaluation.')),
                ('enabled', models.BooleanField(default=True)),
                ('missed', models.TextField(choices=[('fire_once', 'fire_once'), ('skip', 'skip'), ('fire_all', 'fire_all')], default='fire_once')),
                ('overlap', models.TextField(choices=[('allow', 'allow'), ('skip', 'skip'), ('queue_one', 'queue_one'), ('cancel_running', 'cancel_running')], default='allow')),
                ('execution', models.JSONField(help_text='Execution that it starts.')),
                ('next_slot_at', models.DateTimeField(help_text='Null: it is not enabled, or it has no further slot.', null=True)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
            ],
            options={
                'permissions': [('evaluate_trigger', 'Can have triggers evaluated now')],
                'constraints': [models.UniqueConstraint(fields=('namespace', 'name'), name='trigger_name_once'), models.CheckConstraint(condition=models.Q(('missed__in', [jobs.states.Missed['FIRE_ALL'], jobs.states.Missed['FIRE_ONCE'], jobs.states.Missed['SKIP']])), name='trigger_missed'), models.CheckConstraint(condition=models.Q(('overlap__in', [jobs.states.Overlap['ALLOW'], jobs.states.Overlap['CANCEL_RUNNING'], jobs.states.Overlap['QUEUE_ONE'], jobs.states.Overlap['SKIP']])), name='trigger_overlap'), models.CheckConstraint(condition=models.Q(models.Q(('cron__isnull', True), ('interval_seconds__gt', 0)), models.Q(('cron__isnull', False), ('interval_seconds__isnull', True)), _connector='OR'), name='trigger_has_one_schedule')],
            },
        ),
        migrations.CreateModel(
            name='Execution',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('root_id', models.UUIDField(help_text='Root execution of its tree of children; often itself.')),
                ('namespace', models.TextField(db_default='default', help_text='Only workers of this namespace get its steps.')),
                ('name', models.TextField()),
                ('key', models.TextField(null=True)),
                ('fingerprint', models.BinaryField(help_text='SHA-256 of the submitted content.')),
                ('definition', models.JSONField(help_text='Submitted content.')),
                ('inputs', models.JSONField(db_default={}, help_text='Payload of all steps that have none.')),
                ('outputs_from', models.JSONField(help_text='`paths`: path of each output by JSON pointer, null if it is hidden. `reads`: their steps.', null=True)),
                ('outputs', models.JSONField(help_text='Values of its outputs at its end.', null=True)),
                ('loop', models.JSONField(help_text='Loop whose items its steps are: `step`, `fail_fast`, perhaps `max_parallel`. Null: it is no loop.', null=True)),
                ('state', models.TextField(db_default='RUNNING')),
                ('open_steps', models.IntegerField(help_text='Number of steps whose end has no effect yet. Hooks do not count.')),
                ('passed_on', models.BooleanField(db_default=False, help_text='True: its end has ended its parent step.')),
                ('timeout_seconds', models.FloatField(null=True)),
                ('deadline_seconds', models.FloatField(null=True)),
                ('deadline_at', models.DateTimeField(help_text='Its creation and `deadline_seconds`.', null=True)),
                ('on_deadline', models.TextField(help_text='Null: it has no deadline.', null=True)),
                ('started_observed', models.FloatField(db_default=controlplane.core.model_fields.ObservedNow())),
                ('cancel_requested_at', models.DateTimeField(null=True)),
                ('error', models.JSONField(null=True)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('finished_at', models.DateTimeField(null=True)),
                ('owner', models.ForeignKey(db_index=False, help_text='Null: a trigger started it.', null=True, on_delete=django.db.models.deletion.PROTECT, to='liveness.apitoken')),
                ('rerun_of', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='jobs.execution')),
                ('trigger', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='executions', to='jobs.trigger')),
            ],
            options={
                'permissions': [('cancel_execution', 'Can cancel executions'), ('rerun_execution', 'Can run executions again'), ('answer_execution', 'Can answer approvals')],
            },
        ),
        migrations.CreateModel(
            name='WorkerJob',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('kind', models.TextField(db_default='TASK')),
                ('state', models.TextField(db_default='PENDING')),
                ('attempt_id', models.UUIDField(help_text='Id of the live attempt.', null=True)),
                ('namespace', models.TextField(db_default='default', help_text='Only workers of this namespace get it.')),
                ('key', models.TextField(null=True)),
                ('unique_key', models.TextField(help_text='Key by which later submissions of its owner find it. Several jobs may have it.', null=True)),
                ('name', models.TextField(db_default='', help_text='Name that its submitter gave it.')),
                ('fingerprint', models.BinaryField(help_text='SHA-256 of the submitted content.')),
                ('step', models.TextField(help_text='Key of the step in its execution.', null=True)),
                ('position', models.IntegerField(help_text='Position in the definition; hooks come last.', null=True)),
                ('is_hook', models.BooleanField(db_default=False, help_text='True: it runs only if its execution has failed.')),
                ('continue_on_failure', models.BooleanField(db_default=False, help_text='True: steps that depend on it run even if it fails.')),
                ('condition', models.TextField(help_text='Path (`when`); the step is SKIPPED if it is false.', null=True)),
                ('run_if_skipped', models.BooleanField(db_default=False, help_text='True: it runs even if a step that it depends on is skipped by a condition.')),
                ('payload_from', models.JSONField(help_text='Path of each reference in the payload, by JSON pointer.', null=True)),
                ('reads', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Keys of the steps that its paths read. Null: it has no paths.', null=True, size=None)),
                ('loop', models.JSONField(help_text='Step that runs for each item of a list: `for_each`, `fail_fast`, `required_tags` of its items, perhaps `max_parallel`. Its `items` stay until its child begins.', null=True)),
                ('restart_of_id', models.UUIDField(help_text='Same step of the earlier run, if its execution is a restart.', null=True)),
                ('is_kept', models.BooleanField(db_default=False, help_text='True: that step had completed. This one starts as COMPLETED, with its output.')),
                ('waits_for', models.IntegerField(db_default=0, help_text='Number of steps it depends on that have not ended.')),
                ('passed_on', models.BooleanField(db_default=False, help_text='True: its end has taken effect on its execution or trigger.')),
                ('action', models.JSONField()),
                ('payload', models.JSONField(null=True)),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], size=None)),
                ('required_tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], size=None)),
                ('priority', models.IntegerField(db_default=0)),
                ('timeout_seconds', models.FloatField(null=True)),
                ('on_worker_lost', models.TextField(db_default='RESUBMIT')),
                ('unmatched', models.TextField(db_default='fail')),
                ('max_retries', models.IntegerField(db_default=0)),
                ('retry_delay_seconds', models.FloatField(db_default=0)),
                ('retry_backoff', models.TextField(db_default='fixed')),
                ('retry_on', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Error codes; null: all errors of its code.', null=True, size=None)),
                ('good_until', models.DateTimeField(help_text='Time at which it is EXPIRED if it still waits.', null=True)),
                ('limits', models.JSONField(help_text='Slots that it needs, by key.', null=True)),
                ('parked_by', models.JSONField(help_text='Why it may not be claimed although PENDING: `limit` or `max_parallel`. Null: it may.', null=True)),
                ('worker_slots', models.IntegerField(db_default=1, help_text='Slots of its worker that an attempt holds.')),
                ('isolation', models.TextField(help_text='Process that its code must have; null: the worker decides.', null=True)),
                ('deadline_seconds', models.FloatField(null=True)),
                ('deadline_at', models.DateTimeField(help_text='Its creation and `deadline_seconds`.', null=True)),
                ('on_deadline', models.TextField(help_text='Null: it has no deadline.', null=True)),
                ('traceparent', models.TextField(help_text='Trace in which it was submitted (W3C).', null=True)),
                ('attempt_traceparent', models.TextField(help_text='Span of its last started attempt, if its worker records spans.', null=True)),
                ('refused_by', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), db_default=[], help_text='Servers that gave it back as not allowed; they do not get it again.', size=None)),
                ('wait', models.JSONField(help_text='Event that a step waits for, or waited for, without a worker.', null=True)),
                ('wait_due_at', models.DateTimeField(help_text='Time at which its wait is looked at.', null=True)),
                ('wait_signal', models.TextField(help_text='Name of the signal that it waits for, or waited for.', null=True)),
                ('wait_timeout_observed', models.FloatField(help_text='Observed time at which its wait times out.', null=True)),
                ('attempt_count', models.IntegerField(db_default=0)),
                ('resubmissions', models.IntegerField(db_default=0, help_text='Number of losses after which it was resubmitted.')),
                ('retries', models.IntegerField(db_default=0)),
                ('cancel_requested_at', models.DateTimeField(null=True)),
                ('cancel_requested_observed', models.FloatField(null=True)),
                ('pending_observed', models.FloatField(db_default=controlplane.core.model_fields.ObservedNow(), help_text='Observed time when it last began to wait.')),
                ('output', models.JSONField(null=True)),
                ('error', models.JSONField(null=True)),
                ('checkpoint', models.JSONField(help_text='Checkpoint of its code for the next attempt.', null=True)),
                ('checkpoint_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('available_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('finished_at', models.DateTimeField(null=True)),
                ('send_requested_at', models.DateTimeField(help_text='Time when it was requested to send a Celery task again; a worker does it.', null=True)),
                ('dismissed_at', models.DateTimeField(help_text='Time when it was dismissed from quarantine.', null=True)),
                ('execution', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='jobs.execution')),
                ('owner', models.ForeignKey(db_index=False, help_text='Null: a trigger created it.', null=True, on_delete=django.db.models.deletion.PROTECT, to='liveness.apitoken')),
                ('resubmission_of', models.ForeignKey(db_constraint=False, db_index=False, help_text='Ended job that it repeats.', null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='jobs.workerjob')),
            ],
            options={
                'permissions': [('cancel_workerjob', 'Can cancel jobs'), ('resubmit_workerjob', 'Can resubmit jobs'), ('fail_workerjob', 'Can fail jobs'), ('dismiss_workerjob', 'Can dismiss jobs from quarantine'), ('recover_workerjob', 'Can recover stale attempts by hand')],
            },
        ),
        migrations.CreateModel(
            name='TriggerSlot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slot', models.DateTimeField()),
                ('outcome', models.TextField()),
                ('by', models.TextField(db_default='', help_text='Actor who requested it; empty: the schedule.')),
                ('note', models.TextField(db_default='', help_text='Explanation for people.')),
                ('key', models.TextField(help_text='Idempotency key of the request.', null=True)),
                ('is_running', models.BooleanField(db_default=False, help_text='True: its execution has not ended, as of the last tick.')),
                ('execution', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='jobs.execution')),
                ('trigger', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='jobs.trigger')),
                ('job', models.OneToOneField(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='slot', to='jobs.workerjob')),
            ],
            options={
                'ordering': ['-slot'],
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
            name='LateReport',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('event', models.TextField()),
                ('reason', models.TextField(help_text='Error code of the refusal.')),
                ('body', models.JSONField()),
                ('digest', models.BinaryField(help_text='SHA-256 of event and body, so that repeats are not stored.', null=True)),
                ('more', models.BooleanField(db_default=False, help_text='True: last stored report of its attempt; more followed.')),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='late_reports', to='jobs.attempt')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='late_reports', to='jobs.workerjob')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.AddField(
            model_name='execution',
            name='parent_step',
            field=models.OneToOneField(db_constraint=False, help_text='Step that it is the run of.', null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='child', to='jobs.workerjob'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='jobs.workerjob'),
        ),
        migrations.CreateModel(
            name='BatchItem',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('subject_id', models.UUIDField()),
                ('seen', models.TextField(db_default='', help_text='State and attempt when it was chosen; empty: any.')),
                ('outcome', models.TextField(db_default='PENDING')),
                ('reason', models.TextField(db_default='', help_text='Reason of a refusal.')),
                ('result_id', models.UUIDField(help_text='Id of the job or execution that the action created.', null=True)),
                ('tries', models.IntegerField(db_default=0)),
                ('leased_until', models.DateTimeField(help_text='Lease of the process that works on it.', null=True)),
                ('at', models.DateTimeField(help_text='Time of the outcome.', null=True)),
                ('batch', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='items', to='jobs.batch')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['batch', 'id'], name='batchitem_of_batch'), models.Index(fields=['batch', 'outcome', 'id'], name='batchitem_by_outcome')],
                'constraints': [models.CheckConstraint(condition=models.Q(('outcome__in', [jobs.states.ItemOutcome['DONE'], jobs.states.ItemOutcome['PENDING'], jobs.states.ItemOutcome['REFUSED']])), name='batchitem_outcome')],
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
                ('line', models.TextField(help_text='Text for people.')),
                ('execution', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='events', to='jobs.execution')),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['execution', 'id'], name='executionevent_of_execution')],
                'constraints': [models.CheckConstraint(condition=models.Q(('code__in', [jobs.states.EventCode['CODE_MAY_RUN'], jobs.states.EventCode['DEADLINE_MISSED'], jobs.states.EventCode['EXECUTION_REPAIRED'], jobs.states.EventCode['EXECUTION_TIMEOUT'], jobs.states.EventCode['HOOK_FAILED'], jobs.states.EventCode['JOB_REQUEUED'], jobs.states.EventCode['JOB_RESUBMITTED'], jobs.states.EventCode['NO_MATCHING_WORKER'], jobs.states.EventCode['RETRY'], jobs.states.EventCode['STEP_SKIPPED'], jobs.states.EventCode['STEP_TIMEOUT'], jobs.states.EventCode['WORKER_CRASHED']])), name='executionevent_code')],
            },
        ),
        migrations.CreateModel(
            name='AlertMessage',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('event', models.TextField(help_text='opened, updated, ended or test')),
                ('number', models.IntegerField(db_default=0, help_text='Number of an update within its incident.')),
                ('channel', models.TextField(help_text='webhook, email or apprise, with the number of the address.')),
                ('payload', models.JSONField()),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('next_try_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='Null: it was sent, or sending has failed finally.', null=True)),
                ('tries', models.IntegerField(db_default=0)),
                ('sent_at', models.DateTimeField(null=True)),
                ('error', models.TextField(db_default='', help_text='Error of the last try.')),
                ('incident', models.ForeignKey(help_text='Null: a test message.', null=True, on_delete=django.db.models.deletion.CASCADE, to='jobs.incident')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(condition=models.Q(('next_try_at__isnull', False)), fields=['next_try_at'], name='alertmessage_due')],
                'constraints': [models.UniqueConstraint(fields=('incident', 'event', 'number', 'channel'), name='alertmessage_once')],
            },
        ),
        migrations.CreateModel(
            name='LogLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('stream', models.TextField(choices=[('STDOUT', 'Stdout'), ('STDERR', 'Stderr')])),
                ('line', models.TextField()),
                ('number', models.IntegerField(help_text='Number of the line in the attempt, from 1.')),
                ('sequence', models.IntegerField(help_text="Highest sequence of the attempt's LOG reports so far.", null=True)),
                ('attempt', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='log_lines', to='jobs.attempt')),
            ],
            options={
                'indexes': [models.Index(fields=['attempt', 'id'], name='logline_of_attempt')],
            },
        ),
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
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='liveness.apitoken')),
            ],
            options={
                'indexes': [models.Index(fields=['namespace', 'name', 'created_at'], name='signal_by_name'), models.Index(condition=models.Q(('is_delivered', False)), fields=['id'], name='signal_to_deliver')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('key__isnull', False)), fields=('owner', 'key'), name='signal_key_once')],
            },
        ),
        migrations.CreateModel(
            name='StoredBytes',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('bytes', models.BigIntegerField(help_text='Negative: bytes were deleted.')),
                ('owner', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, to='liveness.apitoken')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['owner'], include=('bytes',), name='storedbytes_of_owner')],
            },
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(models.F('namespace'), models.F('required_tags'), models.OrderBy(models.F('priority'), descending=True), models.F('available_at'), models.F('id'), condition=models.Q(('parked_by__isnull', True), ('state', jobs.states.JobState['PENDING'])), name='job_to_claim'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(django.db.models.fields.json.KeyTextTransform('limit', 'parked_by'), models.F('namespace'), models.F('required_tags'), models.OrderBy(models.F('priority'), descending=True), models.F('available_at'), models.F('id'), condition=models.Q(('parked_by__isnull', False), ('state', jobs.states.JobState['PENDING'])), name='job_parked'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=django.contrib.postgres.indexes.GinIndex(models.F('limits'), condition=models.Q(('limits__isnull', False), ('parked_by__isnull', True), ('state', jobs.states.JobState['PENDING'])), fastupdate=False, name='job_with_limits'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('parked_by__isnull', True), ('state', jobs.states.JobState['PENDING']), ('worker_slots__gt', 1)), fields=['namespace', 'required_tags', 'worker_slots'], name='job_with_slots'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(fields=['owner', 'id'], name='job_of_owner'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING'])), fields=['owner', 'required_tags'], name='job_waiting_tags_of_owner'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state__in', [jobs.states.JobState['BLOCKED'], jobs.states.JobState['CLAIMED'], jobs.states.JobState['PENDING'], jobs.states.JobState['RUNNING']]), ('unique_key__isnull', False)), fields=['owner', 'unique_key'], name='open_job_of_unique_key'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('unique_key__isnull', False)), fields=['owner', 'unique_key', 'created_at'], name='job_of_unique_key'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(fields=['state', 'id'], name='job_by_state'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING'])), fields=['available_at'], name='job_waiting'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('kind', jobs.states.JobKind['TRIGGER'])), fields=['id'], name='job_of_trigger'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('good_until__isnull', False), ('state', jobs.states.JobState['PENDING'])), fields=['good_until'], name='job_good_until'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('passed_on', False), ('state__in', [jobs.states.JobState['CANCELLED'], jobs.states.JobState['COMPLETED'], jobs.states.JobState['EXPIRED'], jobs.states.JobState['FAILED'], jobs.states.JobState['SKIPPED']]), models.Q(('execution__isnull', False), ('kind', jobs.states.JobKind['TRIGGER']), _connector='OR')), fields=['execution'], name='job_to_pass_on'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['PENDING']), models.Q(('refused_by', []), _negated=True)), fields=['id'], name='job_refused'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['BLOCKED'])), fields=['execution'], name='job_blocked'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('resubmission_of__isnull', False)), fields=['resubmission_of', 'id'], name='job_resubmission'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['FAILED'])), fields=['finished_at'], name='job_failed'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('dismissed_at__isnull', True), ('error__code__in', ('RESUBMISSIONS_EXHAUSTED', 'WORKER_CRASHED')), ('state', jobs.states.JobState['FAILED'])), fields=['id'], name='job_in_quarantine'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['finished_at'], name='job_ended'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['RUNNING']), ('wait_due_at__isnull', False)), fields=['wait_due_at'], name='job_wait_due'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['RUNNING']), ('wait_timeout_observed__isnull', False)), fields=['wait_timeout_observed'], name='job_wait_timeout'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['RUNNING']), ('wait_signal__isnull', False)), fields=['namespace', 'wait_signal'], name='job_waits_for_signal'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['RUNNING']), ('wait__what', 'answer')), fields=['id'], name='job_waits_for_answer'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('attempt_id__isnull', True), ('state', jobs.states.JobState['RUNNING']), ('wait__isnull', True)), fields=['execution'], name='job_with_child'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('send_requested_at__isnull', False)), fields=['owner'], name='job_to_send'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('deadline_at__isnull', False), ('finished_at__isnull', True)), fields=['deadline_at'], name='job_deadline'),
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('error__code', 'DEADLINE_MISSED'), ('state', 'CANCELLED')), fields=['finished_at'], name='job_missed_deadline'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', [jobs.states.JobState['BLOCKED'], jobs.states.JobState['CANCELLED'], jobs.states.JobState['CLAIMED'], jobs.states.JobState['COMPLETED'], jobs.states.JobState['EXPIRED'], jobs.states.JobState['FAILED'], jobs.states.JobState['PENDING'], jobs.states.JobState['RUNNING'], jobs.states.JobState['SKIPPED']])), name='job_state'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', [jobs.states.JobKind['CELERY'], jobs.states.JobKind['TASK'], jobs.states.JobKind['TRIGGER']])), name='job_kind'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('on_worker_lost__in', [jobs.states.OnWorkerLost['FAIL'], jobs.states.OnWorkerLost['RESUBMIT']])), name='job_on_worker_lost'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('unmatched__in', [jobs.states.Unmatched['FAIL'], jobs.states.Unmatched['WAIT']])), name='job_unmatched'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('isolation__in', [jobs.states.Isolation['PROCESS']])), name='job_isolation'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('retry_backoff__in', [jobs.states.RetryBackoff['EXPONENTIAL'], jobs.states.RetryBackoff['FIXED']])), name='job_retry_backoff'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.UniqueConstraint(condition=models.Q(('key__isnull', False)), fields=('owner', 'key'), name='job_key_once'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', False), ('state__in', [jobs.states.JobState['CANCELLED'], jobs.states.JobState['COMPLETED'], jobs.states.JobState['EXPIRED'], jobs.states.JobState['FAILED'], jobs.states.JobState['SKIPPED']])), models.Q(models.Q(('state__in', [jobs.states.JobState['CANCELLED'], jobs.states.JobState['COMPLETED'], jobs.states.JobState['EXPIRED'], jobs.states.JobState['FAILED'], jobs.states.JobState['SKIPPED']]), _negated=True), ('finished_at__isnull', True)), _connector='OR'), name='job_finished_at_its_end'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('attempt_id__isnull', False), ('state__in', [jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['RUNNING']])), models.Q(models.Q(('state__in', [jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['RUNNING']]), _negated=True), ('attempt_id__isnull', True)), models.Q(('action__type__in', ['approval', 'execution', 'wait']), ('attempt_id__isnull', True), ('state', jobs.states.JobState['RUNNING'])), models.Q(('attempt_id__isnull', True), ('loop__isnull', False), ('state', jobs.states.JobState['RUNNING'])), _connector='OR'), name='job_held_while_live'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.UniqueConstraint(condition=models.Q(('execution__isnull', False)), fields=('execution', 'step'), name='job_step_once'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(('on_deadline__in', [jobs.states.OnDeadline['CANCEL'], jobs.states.OnDeadline['FLAG']])), name='job_on_deadline'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('BLOCKED', 'CANCELLED'), ('BLOCKED', 'FAILED'), ('BLOCKED', 'PENDING'), ('BLOCKED', 'SKIPPED'), ('PENDING', 'CANCELLED'), ('PENDING', 'CLAIMED'), ('PENDING', 'EXPIRED'), ('PENDING', 'FAILED'), ('PENDING', 'RUNNING'), ('CLAIMED', 'CANCELLED'), ('CLAIMED', 'FAILED'), ('CLAIMED', 'PENDING'), ('CLAIMED', 'RUNNING'), ('RUNNING', 'CANCELLED'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('RUNNING', 'PENDING'), ('RUNNING', 'SKIPPED')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='955ba743ddfa1bc1a1fd8e12765af950cc8e8bd1', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_8e8e3', table='jobs_workerjob', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='legal_beginning', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.state NOT IN ('BLOCKED', 'PENDING') AND NOT (NEW.is_kept AND NEW.state = 'COMPLETED'))", func="RAISE EXCEPTION 'illegal first state %', NEW.state USING ERRCODE = 'check_violation';", hash='610dbbd9c5c1d60d74de95dd238cf83df1b49d74', operation='INSERT', pgid='pgtrigger_legal_beginning_0c5c4', table='jobs_workerjob', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='pass_turn', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.limits IS NOT NULL AND OLD.state = 'PENDING' AND NEW.state NOT IN ('PENDING', 'CLAIMED'))", func='INSERT INTO jobs_limitturn (key) SELECT jsonb_object_keys(OLD.limits); RETURN NULL;', hash='7e950c8cd208da205189e917b81b41242a08a304', operation='UPDATE OF "state"', pgid='pgtrigger_pass_turn_a898e', table='jobs_workerjob', when='AFTER')),
        ),
        migrations.AddConstraint(
            model_name='triggerslot',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', [jobs.states.SlotOutcome['EVALUATING'], jobs.states.SlotOutcome['FAILED'], jobs.states.SlotOutcome['FIRED'], jobs.states.SlotOutcome['MISSED'], jobs.states.SlotOutcome['NOT_FIRED'], jobs.states.SlotOutcome['QUEUED'], jobs.states.SlotOutcome['SKIPPED']])), name='triggerslot_outcome'),
        ),
        migrations.AddConstraint(
            model_name='triggerslot',
            constraint=models.UniqueConstraint(fields=('trigger', 'slot'), name='triggerslot_once'),
        ),
        migrations.AddConstraint(
            model_name='triggerslot',
            constraint=models.UniqueConstraint(condition=models.Q(('key__isnull', False)), fields=('trigger', 'key'), name='triggerslot_once_by_key'),
        ),
        migrations.AddIndex(
            model_name='triggerslot',
            index=models.Index(condition=models.Q(('outcome__in', [jobs.states.SlotOutcome['QUEUED'], jobs.states.SlotOutcome['EVALUATING']]), ('is_running', True), _connector='OR'), fields=['trigger'], name='triggerslot_open'),
        ),
        migrations.AddIndex(
            model_name='latereport',
            index=models.Index(fields=['at'], name='latereport_by_time'),
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
            index=models.Index(fields=['state', 'id'], name='execution_by_state'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(fields=['name', 'id'], name='execution_by_name'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state__in', [jobs.states.ExecutionState['CANCELLED'], jobs.states.ExecutionState['COMPLETED'], jobs.states.ExecutionState['FAILED']]), _negated=True), fields=['id'], name='execution_not_over'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('parent_step__isnull', False), ('passed_on', False), ('state__in', [jobs.states.ExecutionState['CANCELLED'], jobs.states.ExecutionState['COMPLETED'], jobs.states.ExecutionState['FAILED']])), fields=['root_id'], name='execution_to_pass_on'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('deadline_at__isnull', False), ('finished_at__isnull', True)), fields=['deadline_at'], name='execution_deadline'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('error__code', 'DEADLINE_MISSED'), ('state', 'CANCELLED')), fields=['finished_at'], name='execution_missed_deadline'),
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
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('on_deadline__in', [jobs.states.OnDeadline['CANCEL'], jobs.states.OnDeadline['FLAG']])), name='execution_on_deadline'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='execution',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('RUNNING', 'CANCELLING'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('CANCELLING', 'CANCELLED'), ('CANCELLING', 'FAILED')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='98d5844bf791609e6fad13b29abd9dad5a0f064a', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_4a80f', table='jobs_execution', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='execution',
            trigger=pgtrigger.compiler.Trigger(name='legal_beginning', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.state NOT IN ('RUNNING'))", func="RAISE EXCEPTION 'illegal first state %', NEW.state USING ERRCODE = 'check_violation';", hash='d476cfb61f5d72167e44c7029fff063860e31112', operation='INSERT', pgid='pgtrigger_legal_beginning_6013c', table='jobs_execution', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('finished_at__isnull', True)), fields=['server'], include=['worker_slots'], name='attempt_live_of_server'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['server', 'id'], name='attempt_of_server'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('request_id__isnull', False)), fields=['request_id'], name='attempt_of_claim'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('interrupted_at__isnull', False)), fields=['interrupted_at'], name='attempt_interrupted_at'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('ended_by', 'liveness')), fields=['server', 'finished_at'], name='attempt_lost'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', [jobs.states.AttemptState['CANCELLED'], jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['COMPLETED'], jobs.states.AttemptState['FAILED'], jobs.states.AttemptState['RELEASED'], jobs.states.AttemptState['REQUEUED'], jobs.states.AttemptState['RESUBMITTED'], jobs.states.AttemptState['RUNNING']])), name='attempt_state'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='attempt_number_once'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(condition=models.Q(('finished_at__isnull', True)), fields=('job',), name='attempt_live_once'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', True), ('state__in', [jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['RUNNING']])), models.Q(models.Q(('state__in', [jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['RUNNING']]), _negated=True), ('finished_at__isnull', False)), _connector='OR'), name='attempt_finished_at_its_end'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='attempt',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('CLAIMED', 'CANCELLED'), ('CLAIMED', 'FAILED'), ('CLAIMED', 'RELEASED'), ('CLAIMED', 'REQUEUED'), ('CLAIMED', 'RUNNING'), ('RUNNING', 'CANCELLED'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('RUNNING', 'RELEASED'), ('RUNNING', 'RESUBMITTED')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='c214d23bbe107c58c2826f75a8f4d3a2a8f35a0c', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_178ac', table='jobs_attempt', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='attempt',
            trigger=pgtrigger.compiler.Trigger(name='legal_beginning', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.state NOT IN ('CLAIMED'))", func="RAISE EXCEPTION 'illegal first state %', NEW.state USING ERRCODE = 'check_violation';", hash='216b9bc685e50beab3590a50c149a8fc1446e7d5', operation='INSERT', pgid='pgtrigger_legal_beginning_6ab25', table='jobs_attempt', when='BEFORE')),
        ),
    ]
