-- prepared statement: list_claimable_jobs
-- List jobs that workers with one of the `offers` could claim now: for each namespace and set of required tags the next
-- `most`, grouped by the servers that refused them and by the slots that they need. Called by the thread that sends hints. An offer is an object with a
-- `namespace` and `tags`. Jobs with the empty tag are left out, because the control plane starts those itself.
-- takes: most bigint, offers text[]
-- returns: namespace text, tags text[], refused_by uuid[], jobs uuid[], slots int
-- row: ClaimableJobs
with recursive offers as (
    -- The limit makes PostgreSQL expect few offers. Otherwise it expects 100 and compiles the statement (JIT).
    select offered.content ->> 'namespace' as namespace,
           array(select jsonb_array_elements_text(offered.content -> 'tags')) as tags
      from (select offer::jsonb as content from unnest(%(offers)s::text[]) offer
             limit cardinality(%(offers)s::text[])) offered
),
known as (select null::text[] as tags where false),
{{pending_tag_sets_of}}
select tag_sets.namespace, tag_sets.required_tags as tags, waiting_jobs.refused_by, array_agg(waiting_jobs.id) as jobs,
       waiting_jobs.worker_slots as slots
  from tag_sets
 cross join lateral (
       select j.id, j.refused_by, j.worker_slots
         from jobs_workerjob j
        where {{is_claimable(j)}} and j.namespace = tag_sets.namespace
          and j.required_tags = tag_sets.required_tags and {{may_be_claimed(j)}}
        order by j.priority desc, j.turn, j.available_at, j.id
        limit %(most)s
       ) waiting_jobs
 where tag_sets.required_tags <> array['']
 group by tag_sets.namespace, tag_sets.required_tags, waiting_jobs.refused_by, waiting_jobs.worker_slots

-- statement: read_server_offer
-- Return the namespace and the tags of a server, and whether a job waits that it could run. Called when a worker
-- starts to wait for a hint. Only a claim decides whether the worker really gets a job.
-- takes: server uuid, version int
-- returns: namespace text, tags text[], has_work bool
-- row: ServerOffer
with recursive offers as (
    select s.namespace, s.tags from liveness_server s where s.id = %(server)s
),
known as (select null::text[] as tags where false),
{{pending_tag_sets_of}}
select s.namespace, s.tags, exists (
       select from tag_sets
         join jobs_workerjob j on {{is_claimable(j)}} and j.namespace = tag_sets.namespace
          and j.required_tags = tag_sets.required_tags
        where not {{has_refused(s, j)}} and {{may_be_claimed(j)}}
          and (j.worker_slots = 1 or j.worker_slots <= {{free_capacity(s)}})) as has_work
  from liveness_server s
 where s.id = %(server)s and s.token_version = %(version)s

-- prepared statement: read_worker_loads
-- Return the loads of workers that may get work and have free capacity: their used slots (`held`) and all their slots. These are some of `servers`, and up to `others`
-- more, which may wait for hints at another process.
-- takes: servers uuid[], others bigint, staleness_multiplier float8
-- returns: server uuid, namespace text, tags text[], held bigint, slots int
-- row: WorkerLoad
select s.id as server, s.namespace, s.tags, s.held, s.max_concurrent as slots
  from (
       (select s.*, {{used_slots(s)}} as held from liveness_server s
         where s.id = any(%(servers)s) and {{liveness.may_get_work(s)}})
       union all
       (select s.*, {{used_slots(s)}} as held from liveness_server s
         where s.state = 'RUNNING' and s.id <> all(%(servers)s) and {{liveness.may_get_work(s)}}
         limit %(others)s)
       ) s
 where s.held < s.max_concurrent
