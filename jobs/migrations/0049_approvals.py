"""Steps that wait for answers of people."""

import importlib

import jobs.states
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
        IF place.name = 'message' AND (kind <> 'string' OR found !~ '^[^[:cntrl:]]+$' OR length(found) > 1000) THEN
            RETURN format('The value at %s is %s, but message must be a text of 1 to 1000 characters on one line',
                          place.path, left((payload -> place.name)::text, 100));
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
"""
RESOLVED_STEP = """
-- Return the state in which a step leaves BLOCKED, its payload without references, and its error.
CREATE OR REPLACE FUNCTION resolved_step(
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
    IF problem IS NULL AND action ->> 'type' IN ('wait', 'approval') THEN
        problem := wait_problem(payload, paths);
    END IF;
    IF problem IS NOT NULL THEN
        state := 'FAILED';
        payload := target;
        error := jsonb_build_object('code', 'INPUT_NOT_AVAILABLE', 'message', problem);
    END IF;
END
$$;
"""
WAIT_PROBLEM_BEFORE = importlib.import_module("jobs.migrations.0048_signals").WAIT_PROBLEM
RESOLVED_STEP_BEFORE = importlib.import_module("jobs.migrations.0047_waits").RESOLVED_STEP


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0048_signals'),
        ('liveness', '0037_heartbeats_by_day'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='execution',
            options={'permissions': [('cancel_execution', 'Can cancel executions'), ('rerun_execution', 'Can run executions again'), ('answer_execution', 'Can answer approvals')]},
        ),
        migrations.RemoveConstraint(
            model_name='workerjob',
            name='job_held_while_live',
        ),
        migrations.AddIndex(
            model_name='workerjob',
            index=models.Index(condition=models.Q(('state', jobs.states.JobState['RUNNING']), ('wait__what', 'answer')), fields=['id'], name='job_waits_for_answer'),
        ),
        migrations.AddConstraint(
            model_name='workerjob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('attempt_id__isnull', False), ('state__in', [jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['RUNNING']])), models.Q(models.Q(('state__in', [jobs.states.AttemptState['CLAIMED'], jobs.states.AttemptState['RUNNING']]), _negated=True), ('attempt_id__isnull', True)), models.Q(('action__type__in', ['approval', 'execution', 'wait']), ('attempt_id__isnull', True), ('state', jobs.states.JobState['RUNNING'])), _connector='OR'), name='job_held_while_live'),
        ),
        migrations.RunSQL(WAIT_PROBLEM, WAIT_PROBLEM_BEFORE),
        migrations.RunSQL(RESOLVED_STEP, RESOLVED_STEP_BEFORE),
    ]
