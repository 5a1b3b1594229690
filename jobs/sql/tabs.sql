-- statement: read_tab_counts
-- What the tabs of the Instance pages tell: of each sort how many rows there are, of these namespaces (null: of all), among
-- the first `counted` that are looked at; `is_full`: there may be more.
-- takes: counted bigint, namespaces text[]
-- returns: sort text, found bigint, is_full bool
-- row: TabCount
select 'silent' as sort, count(*) filter (where {{liveness.is_silent(s)}} and {{is_in_namespaces(s)}}) as found,
       count(*) = %(counted)s as is_full
  from (select * from liveness_server where state in {{ALIVE}} limit %(counted)s) s
 union all
select 'lost', {{counted_rows(s)}}
  from (select * from liveness_server where state in {{TROUBLED}} limit %(counted)s) s
 union all
select kind.sort, number.*
  from (values ('waiting', 'PENDING'), ('claimed', 'CLAIMED'), ('running', 'RUNNING')) kind (sort, state)
 cross join lateral (
       -- A range and this order, which job_by_state alone has: nothing else is to be walked over.
       select {{counted_rows(j)}}
         from (select namespace from jobs_workerjob
                where state between kind.state and kind.state order by state, id limit %(counted)s) j
       ) number
 union all
select 'executions', {{counted_rows(e)}}
  from (select namespace from jobs_execution
         where state not in {{EXECUTION_TERMINAL}} order by id limit %(counted)s) e
 union all
select 'quarantined', {{counted_rows(j)}}
  from (select namespace from jobs_workerjob j where {{is_quarantined(j)}} order by id limit %(counted)s) j
 union all
select 'incidents', count(*), count(*) = %(counted)s
  from (select from jobs_incident where ended_at is null limit %(counted)s) i
 union all
select 'maintenances', (select count(*) from liveness_instance where maintenance_since is not null)
                       + (select count(*) from liveness_clustermaintenance), false
 union all
select 'brakes', count(*), false from liveness_brake where released_by is null

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
