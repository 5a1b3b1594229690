"""Functions of limits: the rules of a key, its free slots and starts, and the jobs of a claim that get theirs."""

from django.db import migrations

LIMIT_PATTERNS = """
-- Return the patterns that match a key, the most specific first.
CREATE FUNCTION limit_patterns(key text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT array[key] || array(
               SELECT left(key, place) || '*' FROM generate_series(length(key), 1, -1) place WHERE substr(key, place, 1) = ':')
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
-- number of all its slots: a job that needs more never starts.
CREATE FUNCTION limit_room(key text, of_namespace text, OUT slots bigint, OUT starts bigint, OUT most bigint)
LANGUAGE sql STABLE AS $$
    SELECT min(l.running - l.used), min(floor(l.tokens))::bigint, min(l.running) FROM limits_of($1, $2) l
$$;
"""
PARKED_AT_SUBMISSION = """
-- Return the limit that parks a new job until somebody looks for free slots, or null: no rule limits one of its keys, or
-- it starts later.
CREATE FUNCTION parked_at_submission(limits jsonb, of_namespace text, available_at timestamptz)
RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('limit', keys.key)
      FROM jsonb_object_keys($1) WITH ORDINALITY AS keys (key, place)
     WHERE coalesce($3 <= clock_timestamp(), true)
       AND EXISTS (SELECT FROM jobs_limitrule r
                    WHERE r.pattern = ANY(limit_patterns(keys.key)) AND r.namespace IN ('default', $2)
                      AND (r.running IS NOT NULL OR r.starts IS NOT NULL))
     ORDER BY place LIMIT 1
$$;
"""
GRANT_SLOTS = """
-- Return which of these jobs of a claim get all the slots that they need, in order, and the key that has none for each
-- other one. `limits` are those of the jobs. The keys are locked until the end of the transaction, in the order of the
-- numbers that they are locked by. The function is VOLATILE, so what it reads under the lock is current. It spends the
-- starts; the caller writes the slots.
CREATE FUNCTION grant_slots(jobs uuid[], limits jsonb[], of_namespace text) RETURNS TABLE (job uuid, missing text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    keys text[];
    rooms jsonb;
    spent jsonb := '{}';
    need record;
BEGIN
    keys := array(SELECT DISTINCT needed.key FROM unnest(limits) of_job, jsonb_object_keys(of_job) needed (key));
    PERFORM pg_advisory_xact_lock(hashed.number)
       FROM (SELECT DISTINCT hashtextextended('limit ' || key, 0) AS number FROM unnest(keys) key ORDER BY number OFFSET 0) hashed;
    SELECT jsonb_object_agg(key, jsonb_build_object('slots', room.slots, 'starts', room.starts)) INTO rooms
      FROM unnest(keys) key CROSS JOIN LATERAL limit_room(key, of_namespace) room;
    FOR place IN 1 .. cardinality(jobs) LOOP
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
    "grant_slots(uuid[], jsonb[], text)": GRANT_SLOTS,
    "parked_at_submission(jsonb, text, timestamptz)": PARKED_AT_SUBMISSION,
    "limit_room(text, text)": LIMIT_ROOM,
    "limits_of(text, text)": LIMITS_OF,
    "limit_patterns(text)": LIMIT_PATTERNS,
}


class Migration(migrations.Migration):
    dependencies = [("jobs", "0050_limits")]
    operations = [
        migrations.RunSQL(made, f"DROP FUNCTION {name}") for name, made in reversed(FUNCTIONS.items())
    ]
