"""Each event of a server keeps its namespace, and a permission shows all namespaces."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('liveness', '0028_key_fingerprint'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='server',
            options={'permissions': [('cordon_server', 'Can cordon and uncordon servers'), ('drain_server', 'Can drain servers'), ('disconnect_server', 'Can disconnect servers'), ('view_all_namespaces', 'Can view all namespaces')]},
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='server',
            name='one_event_per_transition',
        ),
        migrations.AddField(
            model_name='serverevent',
            name='namespace',
            field=models.TextField(help_text='That of its server. Null: of no server.', null=True),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='server',
            trigger=pgtrigger.compiler.Trigger(name='one_event_per_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.state IS DISTINCT FROM NEW.state)', func="\n                    INSERT INTO liveness_serverevent\n                        (at, subject_type, subject_id, subject_name, server_id, server_name, namespace,\n                         from_state, to_state, actor, reason)\n                    VALUES (NEW.state_changed_at, 'server', NEW.id, NEW.name, NEW.id, NEW.name, NEW.namespace,\n                            OLD.state, NEW.state, NEW.state_actor, NEW.state_reason);\n                    INSERT INTO liveness_tally (name, labels, number)\n                    VALUES ('transitions', ARRAY[OLD.state, NEW.state, split_part(NEW.state_actor, ':', 1)], 1);\n                    RETURN NULL;\n                ", hash='e3665658b913fe56612014c48b0a98b5c7e5abca', operation='UPDATE OF "state"', pgid='pgtrigger_one_event_per_transition_2d03d', table='liveness_server', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='serverevent',
            trigger=pgtrigger.compiler.Trigger(name='namespace_of_server', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW.server_id IS NOT NULL AND NEW.namespace IS NULL)', func='\n                    SELECT namespace INTO NEW.namespace FROM liveness_server WHERE id = NEW.server_id;\n                    RETURN NEW;\n                ', hash='6a4b85d3a01233ef254a6c1b96295502f20c3205', operation='INSERT', pgid='pgtrigger_namespace_of_server_6f738', table='liveness_serverevent', when='BEFORE')),
        ),
    ]
