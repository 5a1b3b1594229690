"""Functions that statements and triggers call: for steps with data, steps that wait, limits, and notifications."""

from django.db import migrations

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
-- becomes `***`. A path to nothing gives the default of its reference, otherwise `fallback`. All values together have at
-- most 256 KiB; the others become `fallback`. `problem` is what is too large, or what is missing without a fallback.
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
            problem := format('The values have more than 262144 bytes, so the one at %s is null', place.path);
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
WAIT_PROBLEM = """
-- Return what is wrong with the values that a step which waits got from its execution, or null. `paths` has the path of
-- each by its JSON pointer.
CREATE FUNCTION wait_problem(payload jsonb, paths jsonb) RETURNS text LANGUAGE plpgsql STABLE AS $$
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
LOOP_ITEMS = """
-- Return the list of a loop, or the code and the text of what is wrong with it. `bytes` is what each item stores besides
-- its part of the list.
CREATE FUNCTION loop_items(context jsonb, path text, bytes bigint, OUT items jsonb, OUT code text, OUT problem text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found jsonb := jsonb_path_query_first(context, strict_jsonpath(path), '{}', true);
    size bigint;
BEGIN
    code := 'INPUT_NOT_AVAILABLE';
    IF found IS NULL THEN
        problem := format('There is no list at %s', path);
    ELSIF jsonb_typeof(found) <> 'array' THEN
        problem := format('for_each needs a list, but the value at %s is of the type %s', path, jsonb_typeof(found));
    ELSIF jsonb_array_length(found) > 1000 THEN
        code := 'TOO_MANY_ITEMS';
        problem := format('The list at %s has %s items, but at most 1000 are allowed', path, jsonb_array_length(found));
    ELSIF octet_length(found::text) > 262144 THEN
        problem := format('The list at %s has %s bytes, but at most 262144 are allowed', path, octet_length(found::text));
    ELSE
        size := octet_length(found::text) + bytes * jsonb_array_length(found);
        IF size > 8388608 THEN
            problem := format('The actions and payloads of the %s items at %s have %s bytes, but at most 8388608 are allowed',
                              jsonb_array_length(found), path, size);
        ELSE
            items := found;
            code := NULL;
        END IF;
    END IF;
END
$$;
"""
TIME_IN_MESSAGE = """
-- Return a time as messages have it.
CREATE FUNCTION time_in_message(at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
"""
ERROR_IN_MESSAGE = """
-- Return the code and the beginning of the message of an error.
CREATE FUNCTION error_in_message(error jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN error IS NOT NULL THEN jsonb_build_object('code', error -> 'code', 'message', left(error ->> 'message', 1000)) END
$$;
"""
WRITE_NOTIFICATIONS = """
-- Write a notification to the outbox for each address that wants this state. `facts` are its data.
CREATE FUNCTION write_notifications(kind text, targets jsonb, token uuid, namespace text, state text, facts jsonb)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO jobs_alertmessage (event, channel, url, token_id, namespace, payload)
    SELECT 'notify', 'notify', target ->> 'url', token, namespace, jsonb_build_object(
               'type', kind || '.' || lower(state), 'timestamp', time_in_message(clock_timestamp()), 'data', facts)
      FROM jsonb_array_elements(targets) AS of_each(target)
     WHERE jsonb_exists(target -> 'on', state)
$$;
"""
NOTIFY_JOB_END = """
-- Write the notifications about the end of a job.
CREATE FUNCTION notify_job_end(j jobs_workerjob) RETURNS void LANGUAGE sql AS $$
    SELECT write_notifications('job', j.notify, j.owner_id, j.namespace, j.state, jsonb_build_object(
               'id', j.id, 'key', j.key, 'name', j.name, 'namespace', j.namespace, 'state', j.state,
               'execution', j.execution_id, 'step', j.step, 'output_bytes', coalesce(octet_length(j.output::text), 0),
               'error', error_in_message(j.error), 'created_at', time_in_message(j.created_at),
               'finished_at', time_in_message(j.finished_at)))
$$;
"""
NOTIFY_EXECUTION_END = """
-- Write the notifications about the end of an execution.
CREATE FUNCTION notify_execution_end(e jobs_execution) RETURNS void LANGUAGE sql AS $$
    SELECT write_notifications('execution', e.notify, e.owner_id, e.namespace, e.state, jsonb_build_object(
               'id', e.id, 'key', e.key, 'name', e.name, 'namespace', e.namespace, 'state', e.state,
               'output_bytes', coalesce(octet_length(e.outputs::text), 0),
               'error', error_in_message(e.error), 'created_at', time_in_message(e.created_at),
               'finished_at', time_in_message(e.finished_at)))
$$;
"""
RESOLVED_STEP = """
-- Return the state in which a step leaves BLOCKED, its payload without references, and its error. A step that runs for
-- each item of a list gets its `items`, and keeps its payload for them.
CREATE FUNCTION resolved_step(
    context jsonb, condition text, for_each text, action jsonb, target jsonb, paths jsonb,
    OUT state text, OUT payload jsonb, OUT items jsonb, OUT error jsonb)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    decision boolean;
    code text := 'INPUT_NOT_AVAILABLE';
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
    IF for_each IS NOT NULL THEN
        SELECT l.items, l.code, l.problem INTO items, code, problem
          FROM loop_items(context, for_each, octet_length(action::text) + octet_length(target::text)) l;
    ELSIF paths IS NULL THEN
        RETURN;
    ELSE
        SELECT r.value, r.problem INTO payload, problem FROM resolved_references(target, paths, context, NULL) r;
    END IF;
    IF for_each IS NULL AND problem IS NULL AND action ->> 'type' = 'execution' AND jsonb_typeof(payload) <> 'object' THEN
        problem := format('The inputs of an execution are an object, but the value at %s is not', paths ->> '');
    END IF;
    IF problem IS NULL AND action ->> 'type' IN ('wait', 'approval') THEN
        problem := wait_problem(payload, paths);
    END IF;
    IF problem IS NOT NULL THEN
        state := 'FAILED';
        payload := target;
        error := jsonb_build_object('code', code, 'message', problem);
    END IF;
END
$$;
"""
LIMIT_PATTERNS = """
-- Return the patterns that match a key, the most specific first. It is in plpgsql, because PostgreSQL cannot inline it in
-- SQL, and then it takes several times as long.
CREATE FUNCTION limit_patterns(key text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    patterns text[] := array[key];
    prefix text := key;
BEGIN
    WHILE strpos(prefix, ':') > 0 LOOP
        prefix := left(prefix, 1 + length(prefix) - strpos(reverse(prefix), ':'));
        patterns := patterns || (prefix || '*');
        prefix := left(prefix, -1);
    END LOOP;
    RETURN patterns;
END
$$;
"""
KEYS_OF_JOB = """
-- Return the keys of the namespace, the action and the tags of a job, by which rules may limit it.
CREATE FUNCTION keys_of_job(namespace text, names text[], tags text[]) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array['namespace:' || namespace] || array(SELECT 'action:' || name FROM unnest(names) name WHERE name IS NOT NULL)
           || array(SELECT 'tag:' || tag FROM unnest(tags) tag)
$$;
"""
LIMITS_WITH_RULES = """
-- Return the slots that a job needs: those of the keys that it names, and one for each key that a rule by action, tag or
-- namespace limits. Keys of former rules are left out. Null: it needs none.
CREATE FUNCTION limits_with_rules(limits jsonb, of_namespace text, names text[], tags text[])
RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN nullif(
        coalesce((SELECT jsonb_object_agg(named.key, named.value) FROM jsonb_each(limits) named
                   WHERE named.key !~ '^(action|tag|namespace):'), '{}')
        || coalesce((SELECT jsonb_object_agg(key, 1) FROM unnest(keys_of_job(of_namespace, names, tags)) key
                      WHERE EXISTS (
                            SELECT FROM jobs_limitrule r
                             WHERE r.pattern = ANY(limit_patterns(key)) AND r.namespace IN ('default', of_namespace)
                               AND (r.running IS NOT NULL OR r.starts IS NOT NULL OR r.fair))), '{}'),
        '{}');
END
$$;
"""
LIMITS_OF = """
-- Return the limits of a key for the jobs of a namespace, with what is used of each. A rule of the namespace `default`
-- counts for all namespaces, and each other one for its own. The most specific rule counts, field by field. A mark of a
-- bucket in the future counts as now, because the clock was set back.
CREATE FUNCTION limits_of(key text, of_namespace text)
RETURNS TABLE (namespace text, running int, used bigint, starts int, per_seconds float8, tokens float8)
LANGUAGE sql STABLE ROWS 1 AS $$
    WITH rules AS MATERIALIZED (
        SELECT r.namespace, r.running, r.starts, r.per_seconds, place
          FROM unnest(limit_patterns($1)) WITH ORDINALITY AS patterns (pattern, place)
          JOIN jobs_limitrule r ON r.pattern = patterns.pattern
         WHERE r.namespace IN ('default', $2)
    )
    SELECT scope.namespace, slots.running,
           CASE WHEN slots.running IS NOT NULL THEN (
               SELECT coalesce(sum(s.amount), 0) FROM jobs_limitslot s
                WHERE s.key = $1 AND (scope.namespace = 'default' OR s.namespace = scope.namespace)) END,
           rate.starts, rate.per_seconds,
           CASE WHEN rate.starts IS NOT NULL THEN coalesce((
               SELECT least(rate.starts, b.tokens + rate.starts / rate.per_seconds
                            * greatest(0, extract(epoch FROM clock_timestamp() - b.at))::float8)
                 FROM jobs_limitbucket b WHERE b.namespace = scope.namespace AND b.key = $1), rate.starts) END
      FROM (SELECT DISTINCT rules.namespace FROM rules) scope
      LEFT JOIN LATERAL (
           SELECT rules.running FROM rules
            WHERE rules.namespace = scope.namespace AND rules.running IS NOT NULL ORDER BY place LIMIT 1) slots ON true
      LEFT JOIN LATERAL (
           SELECT rules.starts, rules.per_seconds FROM rules
            WHERE rules.namespace = scope.namespace AND rules.starts IS NOT NULL ORDER BY place LIMIT 1) rate ON true
$$;
"""
LIMIT_ROOM = """
-- Return how many slots of a key are free and how many of its jobs may start now (null: any number). `most` is the
-- number of all its slots: a job that needs more never starts. `reserved` are the slots that a waiting execution needs,
-- by the namespace of the limit. These slots and one start are not free. It is in SQL, so that PostgreSQL puts it into
-- the statement that calls it: a key costs a fifth then. An argument with a subquery prevents that.
CREATE FUNCTION limit_room(key text, of_namespace text, reserved jsonb DEFAULT NULL)
RETURNS TABLE (slots bigint, starts bigint, most bigint) LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT min(l.running - l.used - coalesce(($3 ->> l.namespace)::bigint, 0)),
           min(floor(l.tokens) - coalesce(jsonb_exists($3, l.namespace), false)::int)::bigint, min(l.running)
      FROM limits_of($1, $2) l
$$;
"""
PARKED_AT_SUBMISSION = """
-- Return the limit that parks a new job until somebody looks for free slots, or null: no rule limits one of its keys, or
-- it starts later. A fair key comes first, so that the job has its turn while it waits for the others.
CREATE FUNCTION parked_at_submission(limits jsonb, of_namespace text, available_at timestamptz)
RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    named text;
    first_limit text;
    is_fair boolean;
BEGIN
    IF available_at > clock_timestamp() THEN
        RETURN NULL;
    END IF;
    FOR named IN SELECT jsonb_object_keys(limits) LOOP
        SELECT bool_or(coalesce(r.fair, false)) INTO is_fair
          FROM jobs_limitrule r
         WHERE r.pattern = ANY(limit_patterns(named)) AND r.namespace IN ('default', of_namespace)
           AND (r.running IS NOT NULL OR r.starts IS NOT NULL OR r.fair);
        IF is_fair THEN
            first_limit := named;
            EXIT;
        ELSIF is_fair IS NOT NULL THEN
            first_limit := coalesce(first_limit, named);
        END IF;
    END LOOP;
    RETURN CASE WHEN first_limit IS NOT NULL THEN jsonb_build_object('limit', first_limit) END;
END
$$;
"""
FAIR_WEIGHT = """
-- Return the weight of a fair key for the jobs of a namespace, or null: the key is not fair. The most specific rule
-- counts, field by field, and of two with the same pattern that of the namespace itself.
CREATE FUNCTION fair_weight(key text, of_namespace text) RETURNS int LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- After the key itself, a longer prefix is more specific.
    RETURN (
        SELECT CASE WHEN (array_agg(r.fair) FILTER (WHERE r.fair IS NOT NULL))[1]
                    THEN coalesce((array_agg(r.weight) FILTER (WHERE r.weight IS NOT NULL))[1], 1) END
          FROM (SELECT rule.fair, rule.weight FROM jobs_limitrule rule
                 WHERE rule.pattern = ANY(limit_patterns($1)) AND rule.namespace IN ('default', $2)
                 ORDER BY rule.pattern = $1 DESC, length(rule.pattern) DESC, rule.namespace = 'default') r);
END
$$;
"""
GRANT_SLOTS = """
-- Return which of these jobs of a claim get all the slots that they need, in order, and the key that has none for each
-- other one. `limits` are those of the jobs. The keys are locked until the end of the transaction, in the order of the
-- numbers that they are locked by. The function is VOLATILE, so what it reads under the lock is current. It spends the
-- starts; the caller writes the slots. Mostly all jobs get their slots, so that is checked for all at once first.
-- `reserved` are the slots that waiting executions need, by key and then as in `limit_room`.
CREATE FUNCTION grant_slots(jobs uuid[], limits jsonb[], of_namespace text, reserved jsonb DEFAULT NULL)
RETURNS TABLE (job uuid, missing text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    keys text[];
    rooms jsonb;
    spent jsonb := '{}';
    need record;
    all_fit boolean;
BEGIN
    keys := array(SELECT DISTINCT needed.key FROM unnest(limits) of_job, jsonb_object_keys(of_job) needed (key));
    PERFORM pg_advisory_xact_lock(hashed.number)
       FROM (SELECT DISTINCT hashtextextended('limit ' || key, 0) AS number FROM unnest(keys) key ORDER BY number OFFSET 0) hashed;
    SELECT bool_and(coalesce(total.slots <= room.slots, true) AND coalesce(total.starts <= room.starts, true)),
           coalesce(jsonb_object_agg(total.key, total.starts) FILTER (WHERE room.starts IS NOT NULL), '{}'),
           jsonb_object_agg(total.key, jsonb_build_object('slots', room.slots, 'starts', room.starts))
      INTO all_fit, spent, rooms
      FROM (SELECT needed.key, sum(needed.value::bigint) AS slots, count(*) AS starts
              FROM unnest(limits) of_job, jsonb_each_text(of_job) needed GROUP BY needed.key) total
     CROSS JOIN LATERAL limit_room(total.key, of_namespace, reserved -> total.key) room;
    IF all_fit THEN
        RETURN QUERY SELECT granted.job, NULL::text FROM unnest(jobs) granted (job);
    ELSE
        spent := '{}';
    END IF;
    FOR place IN 1 .. CASE WHEN all_fit THEN 0 ELSE cardinality(jobs) END LOOP
        job := jobs[place];
        missing := (SELECT needed.key FROM jsonb_each_text(limits[place]) needed
                     WHERE (rooms -> needed.key ->> 'slots')::bigint < needed.value::bigint
                        OR (rooms -> needed.key ->> 'starts')::bigint < 1
                     LIMIT 1);
        IF missing IS NULL THEN
            FOR need IN SELECT * FROM jsonb_each_text(limits[place]) LOOP
                rooms := rooms || jsonb_build_object(need.key, jsonb_build_object(
                    'slots', (rooms -> need.key ->> 'slots')::bigint - need.value::bigint,
                    'starts', (rooms -> need.key ->> 'starts')::bigint - 1));
                IF rooms -> need.key ->> 'starts' IS NOT NULL THEN
                    spent := spent || jsonb_build_object(need.key, coalesce((spent ->> need.key)::int, 0) + 1);
                END IF;
            END LOOP;
        END IF;
        RETURN NEXT;
    END LOOP;
    IF spent <> '{}' THEN
        INSERT INTO jobs_limitbucket AS b (namespace, key, tokens, at)
        SELECT l.namespace, each.key, l.tokens - each.value::int, clock_timestamp()
          FROM jsonb_each_text(spent) each CROSS JOIN LATERAL limits_of(each.key, of_namespace) l
         WHERE l.starts IS NOT NULL
            ON CONFLICT ON CONSTRAINT limitbucket_once DO UPDATE SET tokens = excluded.tokens, at = excluded.at;
    END IF;
END
$$;
"""
FUNCTIONS = {
    "canonical_jsonpath(text)": CANONICAL_JSONPATH,
    "strict_jsonpath(text)": STRICT_JSONPATH,
    "resolved_references(jsonb, jsonb, jsonb, jsonb)": RESOLVED_REFERENCES,
    "step_context(uuid, text[])": STEP_CONTEXT,
    "wait_problem(jsonb, jsonb)": WAIT_PROBLEM,
    "loop_items(jsonb, text, bigint)": LOOP_ITEMS,
    "resolved_step(jsonb, text, text, jsonb, jsonb, jsonb)": RESOLVED_STEP,
    "limit_patterns(text)": LIMIT_PATTERNS,
    "keys_of_job(text, text[], text[])": KEYS_OF_JOB,
    "limits_with_rules(jsonb, text, text[], text[])": LIMITS_WITH_RULES,
    "limits_of(text, text)": LIMITS_OF,
    "limit_room(text, text, jsonb)": LIMIT_ROOM,
    "parked_at_submission(jsonb, text, timestamptz)": PARKED_AT_SUBMISSION,
    "fair_weight(text, text)": FAIR_WEIGHT,
    "grant_slots(uuid[], jsonb[], text, jsonb)": GRANT_SLOTS,
    "time_in_message(timestamptz)": TIME_IN_MESSAGE,
    "error_in_message(jsonb)": ERROR_IN_MESSAGE,
    "write_notifications(text, jsonb, uuid, text, text, jsonb)": WRITE_NOTIFICATIONS,
    "notify_job_end(jobs_workerjob)": NOTIFY_JOB_END,
    "notify_execution_end(jobs_execution)": NOTIFY_EXECUTION_END,
}
"""Text of each function by its name and the types of its parameters, for DROP FUNCTION."""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_tables")]
    operations = [migrations.RunSQL(made, f"DROP FUNCTION {name}") for name, made in FUNCTIONS.items()]
