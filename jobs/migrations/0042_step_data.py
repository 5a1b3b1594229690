"""Data between steps: columns for paths, and the functions that read them. BLOCKED steps may fail."""

import django.contrib.postgres.fields
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

CANONICAL_JSONPATH = """
-- Return the canonical text of a path, or null if it is no path.
CREATE FUNCTION canonical_jsonpath(path text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN path::jsonpath::text;
EXCEPTION WHEN others THEN
    RETURN NULL;
END
$$;
"""
STRICT_JSONPATH = """
-- Return a path that is strict unless it begins with a mode of its own.
CREATE FUNCTION strict_jsonpath(path text) RETURNS jsonpath LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT (CASE WHEN path ~ '^\\s*(lax|strict)\\s' THEN path ELSE 'strict ' || path END)::jsonpath
$$;
"""
RESOLVED_REFERENCES = """
-- Replace the references in a value: `paths` has the path of each by its JSON pointer, or null for a hidden value, which
-- becomes `***`. A path to nothing gives the default of its reference, otherwise `fallback`. Without a fallback `problem`
-- says what is missing. All values together have at most 256 KiB.
CREATE FUNCTION resolved_references(
    target jsonb, paths jsonb, context jsonb, fallback jsonb, OUT value jsonb, OUT problem text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    place record;
    keys text[];
    found jsonb;
    bytes bigint := 0;
BEGIN
    value := target;
    FOR place IN SELECT key AS pointer, path FROM jsonb_each_text(paths) AS each(key, path) LOOP
        keys := array(SELECT replace(replace(name, '~1', '/'), '~0', '~')
                        FROM unnest((string_to_array(place.pointer, '/'))[2:]) WITH ORDINALITY AS names(name, number)
                       ORDER BY number);
        found := CASE WHEN place.path IS NULL THEN '"***"' ELSE coalesce(
            jsonb_path_query_first(context, strict_jsonpath(place.path), '{}', true), target #> keys -> 'default', fallback) END;
        IF found IS NULL THEN
            problem := format('There is no value at %s, and the reference has no default', place.path);
            RETURN;
        END IF;
        bytes := bytes + octet_length(found::text);
        IF bytes > 262144 THEN
            IF fallback IS NULL THEN
                problem := format('The values of its references have more than 262144 bytes, at %s', place.path);
                RETURN;
            END IF;
            found := fallback;
        END IF;
        value := CASE WHEN keys = '{}' THEN found ELSE jsonb_set(value, keys, found) END;
    END LOOP;
END
$$;
"""
STEP_CONTEXT = """
-- Return what the paths of a step may read: the inputs of its execution, and the ends of these steps.
CREATE FUNCTION step_context(execution uuid, keys text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('inputs', e.inputs, 'steps', (
               SELECT coalesce(jsonb_object_agg(j.step, jsonb_build_object(
                          'state', j.state, 'output', j.output, 'error', j.error)), '{}')
                 FROM jobs_workerjob j WHERE j.execution_id = e.id AND j.step = ANY(keys)))
      FROM jobs_execution e WHERE e.id = execution
$$;
"""
RESOLVED_STEP = """
-- Return the state in which a step leaves BLOCKED, its payload without references, and its error.
CREATE FUNCTION resolved_step(
    context jsonb, condition text, action jsonb, target jsonb, paths jsonb, OUT state text, OUT payload jsonb, OUT error jsonb)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    decision boolean;
    problem text;
BEGIN
    state := 'PENDING';
    payload := target;
    IF condition IS NOT NULL THEN
        decision := jsonb_path_match(context, strict_jsonpath(condition), '{}', true);
        IF decision IS NULL THEN
            state := 'FAILED';
            error := jsonb_build_object('code', 'CONDITION_ERROR', 'message', format(
                'The condition %s is neither true nor false', condition));
            RETURN;
        ELSIF NOT decision THEN
            state := 'SKIPPED';
            error := jsonb_build_object('code', 'CONDITION_FALSE', 'message', format('The condition %s is false', condition));
            RETURN;
        END IF;
    END IF;
    IF paths IS NULL THEN
        RETURN;
    END IF;
    SELECT r.value, r.problem INTO payload, problem FROM resolved_references(target, paths, context, NULL) r;
    IF problem IS NULL AND action ->> 'type' = 'execution' AND jsonb_typeof(payload) <> 'object' THEN
        problem := format('The inputs of an execution are an object, but the value at %s is not', paths ->> '');
    END IF;
    IF problem IS NOT NULL THEN
        state := 'FAILED';
        payload := target;
        error := jsonb_build_object('code', 'INPUT_NOT_AVAILABLE', 'message', problem);
    END IF;
END
$$;
"""
FUNCTIONS = {
    "resolved_step(jsonb, text, jsonb, jsonb, jsonb)": RESOLVED_STEP,
    "step_context(uuid, text[])": STEP_CONTEXT,
    "resolved_references(jsonb, jsonb, jsonb, jsonb)": RESOLVED_REFERENCES,
    "strict_jsonpath(text)": STRICT_JSONPATH,
    "canonical_jsonpath(text)": CANONICAL_JSONPATH,
}


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0041_plain_help_texts'),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='workerjob',
            name='legal_transition',
        ),
        migrations.AddField(
            model_name='execution',
            name='outputs',
            field=models.JSONField(help_text='Values of its outputs at its end.', null=True),
        ),
        migrations.AddField(
            model_name='execution',
            name='outputs_from',
            field=models.JSONField(help_text='`paths`: path of each output by JSON pointer, null if it is hidden. `reads`: their steps.', null=True),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='condition',
            field=models.TextField(help_text='Path (`when`); the step is SKIPPED if it is false.', null=True),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='payload_from',
            field=models.JSONField(help_text='Path of each reference in the payload, by JSON pointer.', null=True),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='reads',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), help_text='Keys of the steps that its paths read. Null: it has no paths.', null=True, size=None),
        ),
        migrations.AddField(
            model_name='workerjob',
            name='run_if_skipped',
            field=models.BooleanField(db_default=False, help_text='True: it runs even if a step that it depends on is skipped by a condition.'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='workerjob',
            trigger=pgtrigger.compiler.Trigger(name='legal_transition', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (('BLOCKED', 'CANCELLED'), ('BLOCKED', 'FAILED'), ('BLOCKED', 'PENDING'), ('BLOCKED', 'SKIPPED'), ('PENDING', 'CANCELLED'), ('PENDING', 'CLAIMED'), ('PENDING', 'EXPIRED'), ('PENDING', 'FAILED'), ('PENDING', 'RUNNING'), ('CLAIMED', 'CANCELLED'), ('CLAIMED', 'FAILED'), ('CLAIMED', 'PENDING'), ('CLAIMED', 'RUNNING'), ('RUNNING', 'CANCELLED'), ('RUNNING', 'COMPLETED'), ('RUNNING', 'FAILED'), ('RUNNING', 'PENDING')))", func="RAISE EXCEPTION 'illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation';", hash='259a6c51eed18fea0069966f1e067266bbe6f4a3', operation='UPDATE OF "state"', pgid='pgtrigger_legal_transition_8e8e3', table='jobs_workerjob', when='AFTER')),
        ),
        *(migrations.RunSQL(made, f"DROP FUNCTION {name}") for name, made in reversed(FUNCTIONS.items())),
    ]
