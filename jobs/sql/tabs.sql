-- statement: read_tab_counts
-- Count the rows behind each tab of the console, in these namespaces (null: in all). Only the first `counted` rows of
-- each sort are read; `is_full` is true if there may be more.
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
       -- Only the index job_by_state has this range and order, so PostgreSQL reads nothing else.
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
select 'answers', {{counted_rows(j)}}
  from (select namespace from jobs_workerjob j where {{waits_for_answer(j)}} order by id limit %(counted)s) j
 union all
select 'incidents', count(*), count(*) = %(counted)s
  from (select from jobs_incident where ended_at is null limit %(counted)s) i
 union all
select 'maintenances', (select count(*) from liveness_instance where maintenance_since is not null)
                       + (select count(*) from liveness_clustermaintenance), false
 union all
select 'brakes', count(*), false from liveness_brake where released_by is null
 union all
select 'holds', count(*), false
  from jobs_hold h where {{is_in_force(h)}} and (h.namespace is null or {{is_in_namespaces(h)}})

-- statement: read_namespaces_of
-- Return the namespaces of the objects that an address names, at most one of each sort (null: none).
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
