-- statement: list_claimable_jobs
-- The jobs that wait to be claimed now, the next `most` of each set of required tags of a namespace; those that some workers have
-- refused apart. What has the empty tag is dispatched by the control plane itself.
-- takes: most bigint
-- returns: namespace text, tags text[], refused_by uuid[], jobs uuid[]
-- row: ClaimableJobs
with recursive {{pending_tag_sets}}
select tag_sets.namespace, tag_sets.required_tags as tags, waiting_jobs.refused_by, array_agg(waiting_jobs.id) as jobs
  from tag_sets
 cross join lateral (
       select j.id, j.refused_by
         from jobs_workerjob j
        where j.state = 'PENDING' and j.namespace = tag_sets.namespace
          and j.required_tags = tag_sets.required_tags and {{may_be_claimed(j)}}
        order by j.priority desc, j.available_at, j.id
        limit %(most)s
       ) waiting_jobs
 where tag_sets.required_tags <> array['']
 group by tag_sets.namespace, tag_sets.required_tags, waiting_jobs.refused_by

-- statement: read_server_offer
-- What a server may be given work for, and whether a job waits that it could have; whether it may have any now, only
-- its claim says.
-- takes: server uuid, version int
-- returns: namespace text, tags text[], has_work bool
-- row: ServerOffer
with recursive one_namespace as (
    select s.namespace from liveness_server s where s.id = %(server)s
),
{{pending_tag_sets_of_one}}
select s.namespace, s.tags, exists (
       select from tag_sets
         join jobs_workerjob j on j.state = 'PENDING' and j.namespace = tag_sets.namespace
          and j.required_tags = tag_sets.required_tags
        where {{is_suited(s, tag_sets)}} and not {{has_refused(s, j)}} and {{may_be_claimed(j)}}) as has_work
  from liveness_server s
 where s.id = %(server)s and s.token_version = %(version)s

-- statement: read_worker_loads
-- How loaded workers are that may have work now and have room: some `servers`, and so many `others` that may wait at
-- another process.
-- takes: servers uuid[], others bigint, staleness_multiplier float8
-- returns: server uuid, namespace text, tags text[], held bigint, slots int
-- row: WorkerLoad
select s.id as server, s.namespace, s.tags, s.held, s.max_concurrent as slots
  from (
       (select s.*, {{held_attempts(s)}} as held from liveness_server s
         where s.id = any(%(servers)s) and {{liveness.may_get_work(s)}})
       union all
       (select s.*, {{held_attempts(s)}} as held from liveness_server s
         where s.state = 'RUNNING' and s.id <> all(%(servers)s) and {{liveness.may_get_work(s)}}
         limit %(others)s)
       ) s
 where s.held < s.max_concurrent
