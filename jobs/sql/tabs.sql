-- statement: read_tab_counts
-- What the tabs of the Instance pages tell: of each sort how many rows there are, of these namespaces (null: of all), among
-- the first `counted` that are looked at; `is_full`: there may be more.
-- takes: counted bigint, namespaces text[]
-- returns: sort text, found bigint, is_full bool
-- row: TabCount
select sort, count(*) filter (where is_sought and (%(namespaces)s::text[] is null or namespace = any(%(namespaces)s))) as found,
       count(*) = %(counted)s as is_full
  from (
       (select 'silent' as sort, s.namespace, {{liveness.is_silent(s)}} as is_sought from liveness_server s
         where s.state in {{ALIVE}} limit %(counted)s)
        union all
       (select 'lost', s.namespace, true from liveness_server s where s.state in {{TROUBLED}} limit %(counted)s)
        union all
       -- A range and this order, which job_by_state alone has: nothing else is to be walked over.
       (select 'waiting', j.namespace, true from jobs_workerjob j
         where j.state between 'PENDING' and 'PENDING' order by j.state, j.id limit %(counted)s)
        union all
       (select 'claimed', j.namespace, true from jobs_workerjob j
         where j.state between 'CLAIMED' and 'CLAIMED' order by j.state, j.id limit %(counted)s)
        union all
       (select 'running', j.namespace, true from jobs_workerjob j
         where j.state between 'RUNNING' and 'RUNNING' order by j.state, j.id limit %(counted)s)
        union all
       (select 'executions', e.namespace, true from jobs_execution e
         where e.state not in {{EXECUTION_TERMINAL}} order by e.id limit %(counted)s)
        union all
       (select 'quarantined', j.namespace, true from jobs_workerjob j
         where {{is_quarantined(j)}} order by j.id limit %(counted)s)
        union all
       (select 'incidents', null, true from jobs_incident i where i.ended_at is null limit %(counted)s)
        union all
       (select 'maintenances', null, true from liveness_instance where maintenance_since is not null)
        union all
       (select 'maintenances', null, true from liveness_clustermaintenance)
        union all
       (select 'brakes', null, true from liveness_brake where released_by is null)
       ) looked
 group by sort

-- statement: read_namespaces_of
-- The namespaces of what an address names, of each sort at most one (null: none).
-- takes: server uuid, job uuid, execution uuid, trigger uuid
-- returns: namespace text
-- row: NamespaceRow
select namespace from liveness_server where id = %(server)s::uuid
 union all
select namespace from jobs_workerjob where id = %(job)s::uuid
 union all
select namespace from jobs_execution where id = %(execution)s::uuid
 union all
select namespace from jobs_trigger where id = %(trigger)s::uuid
