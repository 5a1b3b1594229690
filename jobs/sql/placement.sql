-- For a waiting job, every alive server: its load, or the first filter that rules it out (as schedulable.sql and
-- claim.sql have them). A row without a server when there is none, or the job does not wait.
with wanted as materialized (
    select j.state, j.required_tags, j.refused_by,
           case when j.available_at > clock_timestamp() then j.available_at end as waits_until,
           (select jsonb_build_object('id', s.id, 'name', s.name)
              from jobs_takenattempt t join liveness_server s on s.id = t.server_id
             where t.job_id = j.id and t.had_begun limit 1) as stops_on
      from jobs_workerjob j
     where j.id = %(job)s and {{interrupt_reach}}
),
seen as (
    select s.*, s.heartbeat_interval * %(staleness_multiplier)s as fresh_for,
           extract(epoch from clock_timestamp() - s.last_heartbeat_at) as silence,
           (select count(*) from jobs_attempt a where a.server_id = s.id and a.state in {{LIVE}}) as held
      from liveness_server s
     where s.state in {{ALIVE}} and (select state from wanted) = 'PENDING'
)
select wanted.state, wanted.waits_until, wanted.stops_on, s.id as server, s.name, ruled_out.filter, ruled_out.detail,
       s.held::float8 / nullif(s.max_concurrent, 0) as load
  from wanted
  left join seen s on true
  left join lateral (
       select filters.* from (values
           (1, 'type', s.type <> 'WORKER', format('it is of type %%s, not WORKER', s.type)),
           (2, 'state', s.state <> 'RUNNING', format('it is %%s, not RUNNING', s.state)),
           (3, 'freshness', (s.silence < s.fresh_for) is not true,
               case when s.silence is null then 'it was not heard yet'
                    else format('its last heartbeat was %%s s ago: stale from %%s s on', floor(s.silence), s.fresh_for)
               end),
           (4, 'cordon', s.drain_deadline is not null, format('it is being drained by %%s', s.cordoned_by)),
           (5, 'cordon', s.cordoned_by is not null, format('cordoned by %%s: %%s', s.cordoned_by, s.cordon_reason)),
           (6, 'maintenance', (select maintenance_since is not null from liveness_instance),
               'the control plane is in maintenance'),
           (7, 'tags', not wanted.required_tags <@ s.tags, format('it lacks %%s', array_to_string(array(
               select unnest(wanted.required_tags) except select unnest(s.tags) order by 1), ', '))),
           (8, 'refused', s.id = any(wanted.refused_by), 'it gave the job back as not allowed'),
           (9, 'capacity', s.held >= s.max_concurrent, format('%%s of %%s in use', s.held, s.max_concurrent))
       ) as filters (rank, filter, rules_out, detail)
        where filters.rules_out
        order by filters.rank
        limit 1
  ) ruled_out on true
 order by ruled_out.rank, load, s.name, s.id
