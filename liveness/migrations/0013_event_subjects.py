"""Each event says what it is about; before, those of jobs, executions, triggers and brakes stood in a server's name."""

import liveness.states
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


# Events are append-only but for this once.
SUBJECTS_OF_OLD_EVENTS = """
    ALTER TABLE liveness_serverevent DISABLE TRIGGER USER;
    UPDATE liveness_serverevent SET subject_id = server_id::text, subject_name = server_name WHERE server_id IS NOT NULL;
    UPDATE liveness_serverevent
       SET subject_type = CASE
               WHEN split_part(server_name, ' ', 1) IN ('job', 'execution', 'trigger') THEN split_part(server_name, ' ', 1)
               WHEN action LIKE 'brake_%' THEN 'brake'
               WHEN action IN ('requeue_stale_claimed', 'fail_stale_running') THEN 'attempts'
               ELSE 'instance' END,
           subject_id = CASE
               WHEN split_part(server_name, ' ', 1) IN ('job', 'execution') THEN split_part(server_name, ' ', 2)
               WHEN action LIKE 'brake_%' THEN server_name
               ELSE '' END,
           subject_name = CASE
               WHEN server_name LIKE 'trigger %' THEN substr(server_name, 9)
               WHEN action LIKE 'brake_%' THEN server_name
               ELSE '' END,
           server_name = ''
     WHERE server_id IS NULL;
    ALTER TABLE liveness_serverevent ENABLE TRIGGER USER;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('liveness', '0012_sign_ins'),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='server',
            name='one_event_per_transition',
        ),
        migrations.AddField(
            model_name='serverevent',
            name='subject_id',
            field=models.TextField(db_default='', help_text='Its key, which it may outlive; empty where there is one.'),
        ),
        migrations.AddField(
            model_name='serverevent',
            name='subject_name',
            field=models.TextField(db_default='', help_text='What it was called then, if it has a name.'),
        ),
        migrations.AddField(
            model_name='serverevent',
            name='subject_type',
            field=models.TextField(default='server', help_text='What it is about.'),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name='serverevent',
            name='reason',
            field=models.TextField(help_text='Of what an operator did, his note.'),
        ),
        migrations.AlterField(
            model_name='serverevent',
            name='server_id',
            field=models.UUIDField(help_text='No foreign key: events outlive servers. Null: of no server.', null=True),
        ),
        migrations.RunSQL(SUBJECTS_OF_OLD_EVENTS, migrations.RunSQL.noop),
        pgtrigger.migrations.AddTrigger(
            model_name='server',
            trigger=pgtrigger.compiler.Trigger(name='one_event_per_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.state IS DISTINCT FROM NEW.state)', func="\n                    INSERT INTO liveness_serverevent\n                        (at, subject_type, subject_id, subject_name, server_id, server_name,\n                         from_state, to_state, actor, reason)\n                    VALUES (NEW.state_changed_at, 'server', NEW.id, NEW.name, NEW.id, NEW.name,\n                            OLD.state, NEW.state, NEW.state_actor, NEW.state_reason);\n                    INSERT INTO liveness_tally (name, labels, number)\n                    VALUES ('transitions', ARRAY[OLD.state, NEW.state, split_part(NEW.state_actor, ':', 1)], 1);\n                    RETURN NULL;\n                ", hash='aa8c139411c2d305f6b56c86b8c03bf8286891c2', operation='UPDATE OF "state"', pgid='pgtrigger_one_event_per_transition_2d03d', table='liveness_server', when='AFTER')),
        ),
        migrations.AddConstraint(
            model_name='serverevent',
            constraint=models.CheckConstraint(condition=models.Q(('subject_type__in', [liveness.states.Subject['ATTEMPTS'], liveness.states.Subject['BRAKE'], liveness.states.Subject['EXECUTION'], liveness.states.Subject['INSTANCE'], liveness.states.Subject['JOB'], liveness.states.Subject['SERVER'], liveness.states.Subject['TOKEN'], liveness.states.Subject['TRIGGER']])), name='serverevent_subject'),
        ),
    ]
