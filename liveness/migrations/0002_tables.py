"""Tables of servers, their events, tokens and clocks."""

import controlplane.core.model_fields
import django.contrib.postgres.fields
import django.db.models.deletion
import liveness.states
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('liveness', '0001_functions'),
    ]

    operations = [
        migrations.CreateModel(
            name='ClusterMaintenance',
            fields=[
                ('cluster', models.TextField(primary_key=True, serialize=False)),
                ('since', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('until', models.DateTimeField(help_text='As in `Instance`.', null=True)),
                ('by', models.TextField()),
                ('note', models.TextField(db_default='')),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='DatabaseTimeline',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('system_identifier', models.TextField(help_text='Identifier of the database cluster.')),
                ('timeline', models.IntegerField()),
                ('began_with_server', models.DateTimeField(help_text='Start of the PostgreSQL process when this row was written.')),
                ('compared_with_server', models.DateTimeField(help_text='Start of the PostgreSQL process at the last comparison. No job is claimed from a later process.')),
                ('last_change_at', models.DateTimeField(help_text='Last stored change. Later ones may be lost.', null=True)),
                ('lost_bytes', models.BigIntegerField(help_text='Bytes of the write-ahead log that are known to be lost. Null: not known.', null=True)),
                ('raised_at', models.DateTimeField(help_text='Time when the attempt counts of open jobs were raised. Null: not yet.', null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='SignIn',
            fields=[
                ('key', models.TextField(help_text='Digest of name and address, because some people type their password as name.', primary_key=True, serialize=False)),
                ('until', models.DateTimeField(help_text='Time from which earlier attempts no longer count.')),
            ],
            options={
                'default_permissions': (),
            },
        ),
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
        migrations.CreateModel(
            name='Timetable',
            fields=[
                ('task', models.TextField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='UnheardServer',
            fields=[
                ('server_id', models.UUIDField(primary_key=True, serialize=False)),
                ('since_observed', models.FloatField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('role', models.TextField(choices=[('worker', 'Worker'), ('client', 'Client'), ('viewer', 'Viewer'), ('operator', 'Operator')])),
                ('prefix', models.TextField(help_text='First characters of the token, to recognize it.')),
                ('digest', models.BinaryField(unique=True)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('types', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Server types that it may register. Null: all.', null=True, size=None)),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Tags that its servers may have. Null: all.', null=True, size=None)),
                ('namespace', models.TextField(db_default='default', help_text='Only namespace that the token has access to.')),
                ('cluster', models.TextField(help_text='Only cluster that its servers may be in. Null: all.', null=True)),
                ('webhook_secret', models.TextField(help_text='Secret that signs notifications. Null: not used yet.', null=True)),
                ('max_servers', models.IntegerField(help_text='Largest number of its servers at once. Null: no limit.', null=True)),
            ],
            options={
                'verbose_name': 'API token',
                'ordering': ['-created_at'],
                'constraints': [models.CheckConstraint(condition=models.Q(controlplane.core.model_fields.IsOneOf('role', words='client,operator,viewer,worker')), name='apitoken_role')],
            },
        ),
        migrations.CreateModel(
            name='Brake',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('type', models.TextField()),
                ('namespace', models.TextField(db_default='default')),
                ('cluster', models.TextField(db_default='', help_text='Only cluster that it holds; empty: all clusters.')),
                ('engaged_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('engaged_observed', models.FloatField()),
                ('silent', models.IntegerField(help_text='Number of servers that would be disconnected.')),
                ('alive', models.IntegerField(help_text='Number of alive servers.')),
                ('released_by', models.TextField(null=True)),
                ('release_reason', models.TextField(db_default='')),
            ],
            options={
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('type', 'namespace', 'cluster'), name='brake_of_namespace_once')],
            },
        ),
        migrations.CreateModel(
            name='Clock',
            fields=[
                ('id', models.SmallIntegerField(db_default=1, primary_key=True, serialize=False)),
                ('tick', models.BigIntegerField(db_default=0, help_text='Number of the present check.')),
                ('tick_at', models.DateTimeField(help_text='Start of the present check.')),
                ('reading', models.FloatField(db_default=0, help_text='Seconds of observed time.')),
                ('advanced_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='Wall time of the reading.')),
                ('credit', models.FloatField(db_default=0, help_text='Largest advance of one check in seconds: 1.5 check intervals, and 0 before the first check.')),
                ('witnessed', models.BooleanField(db_default=False, help_text='Heartbeats could arrive at the present check.')),
                ('moved_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='Time when the reading last advanced.')),
                ('finished_at', models.DateTimeField(help_text='Time when a check last succeeded.', null=True)),
                ('took', models.FloatField(help_text='Duration of that check in seconds.', null=True)),
                ('set_back_by', models.FloatField(db_default=0, help_text="Seconds by which the database's clock was set back, until stored times are corrected.")),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='clock_one_row')],
            },
        ),
        migrations.CreateModel(
            name='Instance',
            fields=[
                ('id', models.SmallIntegerField(db_default=1, primary_key=True, serialize=False)),
                ('maintenance_since', models.DateTimeField(help_text='Null: no maintenance.', null=True)),
                ('maintenance_until', models.DateTimeField(help_text='The first check after it ends it. Null: an operator does.', null=True)),
                ('maintenance_by', models.TextField(db_default='')),
                ('maintenance_note', models.TextField(db_default='')),
                ('maintenance_ended_observed', models.FloatField(help_text='Observed time when maintenance last ended, also of a cluster. Null: never.', null=True)),
                ('key_fingerprint', models.TextField(help_text='Fingerprint of the signing key. Null: not recorded yet.', null=True)),
            ],
            options={
                'verbose_name': 'Instance page',
                'verbose_name_plural': 'Instance pages',
                'permissions': [('change_maintenance', 'Can enter and exit maintenance'), ('release_brake', 'Can release the brake')],
                'default_permissions': (),
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='instance_one_row')],
            },
        ),
        migrations.CreateModel(
            name='LeftOut',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('step', models.TextField(help_text='Name of the step.')),
                ('row', models.TextField(help_text='Id of the row.')),
                ('error', models.TextField()),
                ('at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp(), help_text='Time of the last failure.')),
                ('times', models.IntegerField(db_default=1)),
            ],
            options={
                'verbose_name_plural': 'left out',
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('step', 'row'), name='leftout_once')],
            },
        ),
        migrations.CreateModel(
            name='Server',
            fields=[
                ('id', models.UUIDField(db_default=controlplane.core.model_fields.Uuid7(), primary_key=True, serialize=False)),
                ('type', models.TextField()),
                ('name', models.TextField()),
                ('cluster', models.TextField(db_default='default')),
                ('namespace', models.TextField(db_default='default', help_text='Namespace of its token: it gets only jobs of it.')),
                ('hostname', models.TextField(db_default='')),
                ('pid', models.IntegerField(null=True)),
                ('version', models.TextField(db_default='')),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), db_default=[], size=None)),
                ('given_tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Those of `tags` that were given by hand. Null: all of them.', null=True, size=None)),
                ('max_concurrent', models.IntegerField(db_default=1)),
                ('capabilities', models.JSONField(db_default={})),
                ('instance_id', models.UUIDField(help_text='Chosen by the process, so that a retry registers no second server.')),
                ('token_version', models.IntegerField(db_default=1, help_text='Increased to revoke its server token.')),
                ('heartbeat_interval', models.FloatField(help_text='Seconds.')),
                ('timeout', models.FloatField(help_text='Seconds of silence until DISCONNECTED.')),
                ('termination_grace_period', models.FloatField(help_text='Seconds.')),
                ('worker_task_restart_strategy', models.TextField()),
                ('reactivate_on_heartbeat', models.BooleanField(db_default=False)),
                ('state', models.TextField(db_default='CREATED')),
                ('state_changed_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('state_changed_observed', models.FloatField(db_default=controlplane.core.model_fields.ObservedNow(), help_text='Observed time in seconds.')),
                ('state_changed_tick', models.BigIntegerField(db_default=0, help_text='Number of the liveness check at that time.')),
                ('emptied_tick', models.BigIntegerField(help_text='Number of the check that found it lost and without attempts.', null=True)),
                ('state_actor', models.TextField(db_default='server', help_text='Actor of the last state change.')),
                ('state_reason', models.TextField(db_default='')),
                ('disconnected_observed', models.FloatField(help_text='Observed time when it was last disconnected for silence.', null=True)),
                ('ended_at', models.DateTimeField(help_text='Time when its machine reported that none of its processes runs any more.', null=True)),
                ('created_at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('created_observed', models.FloatField(db_default=controlplane.core.model_fields.ObservedNow())),
                ('last_heartbeat_at', models.DateTimeField(null=True)),
                ('heard_observed', models.FloatField(db_default=controlplane.core.model_fields.ObservedNow(), help_text='Observed time of its last heartbeat.')),
                ('witnessed_at', models.DateTimeField(help_text='Time when one of its heartbeats last proved that heartbeats can arrive.', null=True)),
                ('metrics', models.JSONField(db_default={})),
                ('cordoned_by', models.TextField(help_text='Actor who cordoned it. Null: not cordoned.', null=True)),
                ('cordon_reason', models.TextField(db_default='')),
                ('cordon_until', models.DateTimeField(help_text='The first check after it lifts cordon and drain. Null: never.', null=True)),
                ('drain_deadline', models.DateTimeField(help_text='Time when it gives its remaining attempts back.', null=True)),
                ('drain_until_observed', models.FloatField(null=True)),
                ('drain_held', models.IntegerField(help_text='Number of attempts it held when the drain began.', null=True)),
                ('token', models.ForeignKey(help_text='Token of its registration.', on_delete=django.db.models.deletion.PROTECT, to='liveness.apitoken')),
            ],
            options={
                'permissions': [('cordon_server', 'Can cordon and uncordon servers'), ('drain_server', 'Can drain servers'), ('disconnect_server', 'Can disconnect servers'), ('configure_server', 'Can change concurrency and tags of workers'), ('view_all_namespaces', 'Can view all namespaces')],
            },
        ),
        migrations.CreateModel(
            name='ServerEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=controlplane.core.model_fields.ClockTimestamp())),
                ('subject_type', models.TextField(help_text='Type of the object that the event is about.')),
                ('subject_id', models.TextField(db_default='', help_text='Key of that object; empty if there is only one. The event may outlive the object.')),
                ('subject_name', models.TextField(db_default='', help_text='Name of that object at that time, if it has one.')),
                ('server_id', models.UUIDField(help_text='No foreign key, because events outlive servers. Null: not about a server.', null=True)),
                ('server_name', models.TextField(db_default='')),
                ('namespace', models.TextField(help_text='Namespace of the server. Null: not about a server.', null=True)),
                ('from_state', models.TextField(db_default='')),
                ('to_state', models.TextField(db_default='', help_text='Same as from_state if an action changed no state.')),
                ('action', models.TextField(db_default='', help_text='Action of an operator, a client or the brake; empty for a transition.')),
                ('actor', models.TextField(help_text='server, liveness, operator:NAME or client:NAME')),
                ('reason', models.TextField(help_text='Reason of a transition, or the note of an action.')),
                ('changes', models.JSONField(help_text='Changed fields with their `old` and `new` values. Null: the action changed no fields.', null=True)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['server_id', 'id'], name='serverevent_of_server'), models.Index(fields=['at'], name='serverevent_by_time'), models.Index(condition=models.Q(('subject_type', liveness.states.Subject['SERVER']), _negated=True), fields=['subject_type', 'subject_id', 'id'], name='serverevent_of_subject'), models.Index(condition=models.Q(('action', ''), ('to_state__in', [liveness.states.ServerState['DISCONNECTED'], liveness.states.ServerState['ERROR']])), fields=['at'], name='serverevent_of_loss'), models.Index(fields=['server_name'], name='serverevent_by_name')],
                'constraints': [models.CheckConstraint(condition=models.Q(controlplane.core.model_fields.IsOneOf('subject_type', words='attempts,brake,execution,hold,incident,instance,job,limit,server,token,trigger')), name='serverevent_subject')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='serverevent',
            trigger=pgtrigger.compiler.Trigger(name='namespace_of_server', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW.server_id IS NOT NULL AND NEW.namespace IS NULL)', func='\n                    SELECT namespace INTO NEW.namespace FROM liveness_server WHERE id = NEW.server_id;\n                    RETURN NEW;\n                ', hash='6a4b85d3a01233ef254a6c1b96295502f20c3205', operation='INSERT', pgid='pgtrigger_namespace_of_server_6f738', table='liveness_serverevent', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='serverevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'events are append-only' USING ERRCODE = 'restrict_violation';", hash='6e01bd2e461a596202361ea7378555f76e07f626', operation='UPDATE', pgid='pgtrigger_append_only_c2799', table='liveness_serverevent', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='serverevent',
            trigger=pgtrigger.compiler.Trigger(name='deleted_by_retention_only', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (current_setting('controlplane.retention', true) IS DISTINCT FROM 'on')", func="RAISE EXCEPTION 'events are append-only' USING ERRCODE = 'restrict_violation';", hash='f9c928530bdf4187342e74d9676796eadc2952d9', operation='DELETE', pgid='pgtrigger_deleted_by_retention_only_8fbe7', table='liveness_serverevent', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='server',
            index=models.Index(condition=models.Q(('state', liveness.states.ServerState['INACTIVE']), _negated=True), fields=['state'], name='server_not_inactive'),
        ),
        migrations.AddIndex(
            model_name='server',
            index=models.Index(condition=models.Q(('worker_task_restart_strategy', liveness.states.RestartStrategy['NEVER']), models.Q(('state__in', [liveness.states.ServerState['CREATED'], liveness.states.ServerState['MAINTENANCE'], liveness.states.ServerState['RUNNING']]), _negated=True)), fields=['id'], name='server_keeps_jobs'),
        ),
        migrations.AddIndex(
            model_name='server',
            index=models.Index(condition=models.Q(models.Q(('state__in', [liveness.states.ServerState['CREATED'], liveness.states.ServerState['MAINTENANCE'], liveness.states.ServerState['RUNNING']]), _negated=True), ('drain_until_observed__isnull', False), _connector='OR'), fields=['id'], name='server_may_be_lost'),
        ),
        migrations.AddIndex(
            model_name='server',
            index=models.Index(condition=models.Q(('type', liveness.states.ServerType['WORKER']), _negated=True), fields=['token'], name='server_is_no_worker'),
        ),
        migrations.AddIndex(
            model_name='server',
            index=models.Index(fields=['instance_id'], name='server_of_instance'),
        ),
        migrations.AddIndex(
            model_name='server',
            index=models.Index(condition=models.Q(('cordon_until__isnull', False)), fields=['cordon_until'], name='server_cordon_ends'),
        ),
        migrations.AddIndex(
            model_name='server',
            index=models.Index(condition=models.Q(('state', liveness.states.ServerState['INACTIVE'])), fields=['state_changed_at'], name='server_inactive'),
        ),
        migrations.AddConstraint(
            model_name='server',
            constraint=models.UniqueConstraint(fields=('token', 'instance_id'), name='server_registers_once'),
        ),
        migrations.AddConstraint(
            model_name='server',
            constraint=models.CheckConstraint(condition=models.Q(controlplane.core.model_fields.IsOneOf('state', words='CREATED,DISCONNECTED,ERROR,INACTIVE,MAINTENANCE,NOT_RUNNING,RUNNING,TERMINATED_FORCED,TERMINATED_GRACEFULLY,TERMINATING')), name='server_state'),
        ),
        migrations.AddConstraint(
            model_name='server',
            constraint=models.CheckConstraint(condition=models.Q(controlplane.core.model_fields.IsOneOf('type', words='EXECUTOR,INDEXER,SCHEDULER,WEBSERVER,WORKER')), name='server_type'),
        ),
        migrations.AddConstraint(
            model_name='server',
            constraint=models.CheckConstraint(condition=models.Q(controlplane.core.model_fields.IsOneOf('worker_task_restart_strategy', words='AFTER_TERMINATION_GRACE_PERIOD,IMMEDIATELY,NEVER')), name='server_restart_strategy'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='server',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND OLD.state || ' ' || NEW.state <> ALL ('{CREATED RUNNING,CREATED TERMINATING,CREATED ERROR,CREATED DISCONNECTED,RUNNING MAINTENANCE,RUNNING TERMINATING,RUNNING ERROR,RUNNING DISCONNECTED,MAINTENANCE RUNNING,MAINTENANCE TERMINATING,MAINTENANCE ERROR,MAINTENANCE DISCONNECTED,ERROR TERMINATING,ERROR NOT_RUNNING,DISCONNECTED TERMINATING,DISCONNECTED NOT_RUNNING,TERMINATING TERMINATED_GRACEFULLY,TERMINATING TERMINATED_FORCED,TERMINATING NOT_RUNNING,TERMINATED_GRACEFULLY NOT_RUNNING,TERMINATED_FORCED NOT_RUNNING,NOT_RUNNING INACTIVE}'::text[]) AND NOT (OLD.reactivate_on_heartbeat AND OLD.ended_at IS NULL AND (OLD.state, NEW.state) IN (('DISCONNECTED', 'RUNNING'), ('INACTIVE', 'RUNNING'), ('NOT_RUNNING', 'RUNNING'))))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='3a4f2501f1f1fc066276fc1d4a95e14ba1e49ac2', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_139aa', table='liveness_server', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='server',
            trigger=pgtrigger.compiler.Trigger(name='legal_beginning', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.state <> ALL ('{CREATED}'::text[]))", func="RAISE EXCEPTION 'illegal first state %', NEW.state USING ERRCODE = 'check_violation';", hash='acdc5da71fdab1477c70690e6d9707501fb8370b', operation='INSERT', pgid='pgtrigger_legal_beginning_9902c', table='liveness_server', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='server',
            trigger=pgtrigger.compiler.Trigger(name='times_of_a_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.state IS DISTINCT FROM NEW.state)', func="\n                    NEW.state_changed_at := clock_timestamp();\n                    SELECT tick, CASE WHEN NEW.state_actor = 'liveness' THEN reading ELSE observed_now() END\n                      INTO NEW.state_changed_tick, NEW.state_changed_observed\n                      FROM liveness_clock;\n                    RETURN NEW;\n                ", hash='afe9036d881322b4e1b6f20358864120375a68bf', operation='UPDATE OF "state"', pgid='pgtrigger_times_of_a_transition_a7763', table='liveness_server', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='server',
            trigger=pgtrigger.compiler.Trigger(name='one_event_per_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.state IS DISTINCT FROM NEW.state)', func="\n                    INSERT INTO liveness_serverevent\n                        (at, subject_type, subject_id, subject_name, server_id, server_name, namespace,\n                         from_state, to_state, actor, reason)\n                    VALUES (NEW.state_changed_at, 'server', NEW.id, NEW.name, NEW.id, NEW.name, NEW.namespace,\n                            OLD.state, NEW.state, NEW.state_actor, NEW.state_reason);\n                    INSERT INTO liveness_tally (name, labels, number)\n                    VALUES ('transitions', ARRAY[OLD.state, NEW.state, split_part(NEW.state_actor, ':', 1)], 1);\n                    RETURN NULL;\n                ", hash='e3665658b913fe56612014c48b0a98b5c7e5abca', operation='UPDATE OF "state"', pgid='pgtrigger_one_event_per_transition_2d03d', table='liveness_server', when='AFTER')),
        ),
    ]
