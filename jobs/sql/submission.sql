-- statement: limit_lock_waits
-- Let each statement of this transaction wait at most so many milliseconds for a lock, or as long as the session allows
-- if that is less. Called before `submit_jobs` in the same round trip, for jobs of several clients: one of them must not
-- hold back the others with a key that it has not committed.
-- takes: lock_wait int
-- returns: lock_timeout text
-- row: LockWait
select set_config('lock_timeout', case when session.lock_wait between interval '1 microsecond' and wanted.lock_wait
                                       then current_setting('lock_timeout') else %(lock_wait)s::int::text end, true) as lock_timeout
  from (select current_setting('lock_timeout')::interval as lock_wait) session,
       (select make_interval(secs => %(lock_wait)s::int / 1000.0) as lock_wait) wanted

-- prepared statement: submit_jobs
-- Store the jobs of one or several submitters, in the order of their keys, so that two clients with the same keys cannot
-- deadlock. A job names its submitter by its place in `owners` and `namespaces` (missing: the first). A job whose key is
-- known is left out; the caller looks up the job that has it. `missing_worker` is why a job that requires a worker finds
-- none, `without_worker` are the `runners` that no worker has, and `on_hold` is the hold that refuses it: the caller then rolls back. The row shows the job as
-- it was stored, without fields of more than `largest` bytes of JSON (null: with all), which `left_out` names. With
-- `only_if_clear` a job is left out if there is an obstacle to it, so a single job needs no transaction around the
-- statement. An invalid token of its owner is an obstacle then, too.
-- takes: jobs jsonb, runners jsonb, owners uuid[], namespaces text[], kind text, staleness_multiplier float8,
--   unmatched_after float8, waiting_limit int, tag_sets_limit int, largest int, only_if_clear bool
-- returns: place int, id uuid, missing_worker jsonb|null, is_execution bool, waiting bigint, tag_sets bigint, stored bigint, action jsonb,
--   payload jsonb|null, created_at timestamptz, available_at timestamptz, good_until timestamptz|null, left_out text[]|null,
--   without_worker jsonb|null, on_hold jsonb|null, hold uuid|null, is_parked bool, has_quota bool
-- row: SubmittedJob
-- counted: stored_limit bigint
with submitted as materialized (
    select uuid7() as id, (%(owners)s::uuid[])[coalesce(r.submitter, 1)] as owner,
           (%(namespaces)s::text[])[coalesce(r.submitter, 1)] as namespace, r.*
      from jsonb_to_recordset(%(jobs)s::jsonb) as r(place int, submitter int, key text, fingerprint text, {{job_columns_in_json}})
),
{{tags_without_worker}},
{{runners_without_worker}},
{{refusing_holds}},
submitters as materialized (
    select s.number as submitter, s.owner, {{waiting_of_owner(s)}} as waiting, {{waiting_tag_sets(s)}} as tag_sets,
           (select count(*) from submitted where coalesce(submitted.submitter, 1) = s.number) as jobs,
           not %(only_if_clear)s or s.owner is null or token_is_good(s.owner) as is_valid, {{has_quota(s)}} as has_quota
-- counted:          , {{stored_of_owner(s)}} as stored, (
-- counted:            select sum({{submitted_bytes(submitted)}}) from submitted where coalesce(submitted.submitter, 1) = s.number) as bytes
      from unnest(%(owners)s::uuid[], %(namespaces)s::text[]) with ordinality as s(owner, namespace, number)
),
limited_jobs as materialized (
    select namespace, limits
      from (select namespace, {{all_limits(submitted)}} as limits from submitted offset 0) needed
     where limits is not null
),
keys_without_room as materialized (
    -- The limit makes PostgreSQL expect few keys. Otherwise it compiles the statement (JIT).
    select k.namespace, k.key
      from (select limited_jobs.namespace, needed.key, sum(needed.value::bigint) as slots
              from limited_jobs cross join lateral jsonb_each_text(limited_jobs.limits) needed
             group by limited_jobs.namespace, needed.key
             limit (select count(*) from limited_jobs cross join lateral jsonb_object_keys(limited_jobs.limits))) k
     where not {{has_room(k)}}
),
new_jobs as (
    insert into jobs_workerjob (id, owner_id, namespace, kind, key, fingerprint, available_at, pending_observed, parked_by, {{job_columns}})
    select id, submitted.owner, namespace, %(kind)s, key, decode(fingerprint, 'hex'), greatest(available_at, clock_timestamp()),
           (select observed_now()),
           case when needed.limits is not null and exists (
                    select from keys_without_room w where w.namespace = submitted.namespace and needed.limits ? w.key)
                then parked_at_submission(needed.limits, namespace, available_at) end, {{job_values}}
      from submitted cross join lateral (select {{all_limits(submitted)}} as limits offset 0) needed
     where not %(only_if_clear)s
        or not exists (select from tags_without_worker)
           and not exists (select from refusing_holds r where r.place = submitted.place)
           and not exists (select from runners_without_worker r
                            where r.namespace = submitted.namespace and r.required_tags <@ submitted.required_tags)
           and exists (select from submitters s
                        where s.submitter = coalesce(submitted.submitter, 1) and s.is_valid and not s.has_quota
                          and coalesce(s.waiting + s.jobs <= %(waiting_limit)s, true)
                          and coalesce(s.tag_sets <= %(tag_sets_limit)s, true)
-- counted:                           and coalesce(s.stored + s.bytes <= %(stored_limit)s::bigint, true)
                      )
     order by submitted.owner, key, place
        on conflict (owner_id, key) where key is not null do nothing
 returning id, owner_id, action, payload, notify, created_at, available_at, good_until, parked_by
),
new_rechecks as (
    insert into jobs_limitrecheck (key) select distinct parked_by ->> 'limit' from new_jobs where parked_by is not null
)
-- counted: , byte_changes as (
-- counted:     select owner_id as owner, {{submitted_bytes(new_jobs)}} as bytes from new_jobs
-- counted: ),
-- counted: new_bytes as materialized (select owner, sum(bytes) as bytes from byte_changes group by owner),
-- counted: {{counted_bytes}}
select submitted.place, new_jobs.id, {{missing_worker}} as missing_worker, submitted.action ->> 'type' = 'execution' as is_execution,
       submitters.waiting, submitters.tag_sets,
       0::bigint
-- counted:        + submitters.stored + (select n.bytes from new_bytes n where n.owner = submitters.owner)
       as stored,
       case when too_large.action then jsonb_build_object('type', new_jobs.action -> 'type') else new_jobs.action end as action,
       case when not too_large.payload then new_jobs.payload end as payload,
       new_jobs.created_at, new_jobs.available_at, new_jobs.good_until,
       nullif(array_remove(array[case when too_large.action then 'action' end,
                                 case when too_large.payload then 'payload' end], null), '{}') as left_out,
       (select to_jsonb(array_agg(required_tags)) from runners_without_worker) as without_worker,
       (select to_jsonb(r) from refusing_holds r where r.place = submitted.place) as on_hold,
       {{hold_of_new(submitted)}} as hold, new_jobs.parked_by is not null as is_parked, submitters.has_quota
  from new_jobs join submitted using (id) join submitters on submitters.submitter = coalesce(submitted.submitter, 1)
 cross join lateral (
       select coalesce(octet_length(new_jobs.action::text) > %(largest)s, false) as action,
              coalesce(octet_length(new_jobs.payload::text) > %(largest)s, false) as payload) too_large
