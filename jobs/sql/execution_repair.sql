-- statement: read_repair_range
-- Return the last execution of the range that a sweep looks at closely. The range begins after `since`. Before its end
-- are at most `most` open executions and at most `most` blocked steps. Null: there are no more, so the range has no end.
-- takes: since uuid, most bigint
-- returns: until uuid|null
-- row: RepairRange
select least(
           (select e.id from jobs_execution e
             where e.state not in {{EXECUTION_TERMINAL}} and e.id > %(since)s order by e.id limit 1 offset %(most)s),
           (select j.execution_id from jobs_workerjob j
             where j.state = 'BLOCKED' and j.execution_id > %(since)s
             order by j.execution_id limit 1 offset %(most)s)) as until

-- statement: pick_repair_start
-- Return an execution after which a new process begins to look closely. It is random, because the processes before may have
-- looked only at the first ones. Null: begin with the first one, as always if there are at most `most`.
-- takes: most bigint
-- returns: since uuid|null
-- row: RepairStart
select case when picked.open > %(most)s and picked.place > 0 then (
           select e.id from jobs_execution e
            where e.state not in {{EXECUTION_TERMINAL}} order by e.id limit 1 offset picked.place - 1) end as since
  from (select count(*) as open, floor(random() * (count(*) + %(most)s))::bigint - %(most)s as place
          from jobs_execution e where e.state not in {{EXECUTION_TERMINAL}}) picked

-- statement: find_stalled_executions
-- List open executions that do not continue although something in them has ended. Called by the sweep. Each end is
-- propagated in its own transaction, so what is visible here was left by a crash or by a change by hand. Ends that were
-- not propagated are found everywhere, by their index. The checks that read each open execution or each blocked step
-- read only those after `since` up to `until`. Scalar subqueries use an index and never hash the whole table.
-- takes: since uuid, until uuid, after uuid, batch bigint
-- returns: id uuid
with recursive {{pending_tag_sets}},
stalled (id) as (
    select j.execution_id from jobs_workerjob j
     where j.state in {{TERMINAL}} and not j.passed_on and not j.is_hook and j.execution_id is not null
     union
    select e.id from jobs_execution e
     where e.state not in {{EXECUTION_TERMINAL}} and (e.sealed or e.state = 'CANCELLING')
       and e.id > %(since)s and e.id <= %(until)s
       and (select j.id from jobs_workerjob j
             where j.execution_id = e.id and j.state not in {{TERMINAL}} and not j.is_hook limit 1) is null
     union
    select j.execution_id from jobs_workerjob j
     where j.state = 'BLOCKED' and not j.is_hook and j.execution_id > %(since)s and j.execution_id <= %(until)s
       and (select dependency.id from jobs_stepdependency d join jobs_workerjob dependency on dependency.id = d.depends_on_id
             where d.step_id = j.id and dependency.state not in {{TERMINAL}} limit 1) is null
       and (select e.parked_by from jobs_execution e where e.id = j.execution_id) is null
     union
    select j.execution_id from tag_sets join jobs_workerjob j using (namespace, required_tags)
     where {{is_claimable(j)}} and j.required_tags = array['']
     union
    select e.id from jobs_execution e
     where e.state not in {{EXECUTION_TERMINAL}} and e.state = 'RUNNING' and e.loop ? 'max_parallel'
       and e.id > %(since)s and e.id <= %(until)s
       and (select count(*) from jobs_workerjob j where j.execution_id = e.id and {{takes_place_in_loop(j)}})
           < (e.loop ->> 'max_parallel')::bigint
       and exists (select from jobs_workerjob j where j.execution_id = e.id and j.state = 'PENDING' and {{is_parked_by_loop(j)}})
     union
    select p.execution_id from jobs_workerjob p join jobs_execution c on c.parent_step_id = p.id
     where {{runs_child(p)}} and p.execution_id is not null and c.state in {{EXECUTION_TERMINAL}}
     union
    select p.execution_id from jobs_workerjob p
     where {{runs_child(p)}} and p.execution_id is not null
       and (select c.id from jobs_execution c where c.parent_step_id = p.id limit 1) is null
)
select e.id
  from stalled join jobs_execution e using (id)
 where e.state not in {{EXECUTION_TERMINAL}} and e.id > %(after)s
   -- While the code of an ended step may still run, its dependents must wait, so the execution is in order.
   and not exists (select from jobs_workerjob h
                    where h.execution_id = e.id and h.state in {{TERMINAL}} and not h.passed_on
                      and {{is_held_back(h)}})
 order by e.id
 limit %(batch)s

-- statement: find_stalled_jobs
-- List jobs that are executions, not steps, and do not continue: their child never began or has already ended.
-- takes: after uuid, batch bigint
-- returns: id uuid, child uuid|null
with recursive {{pending_tag_sets}},
stalled as (
    select j.id, null::uuid as child from tag_sets join jobs_workerjob j using (namespace, required_tags)
     where {{is_claimable(j)}} and j.required_tags = array[''] and j.execution_id is null
     union all
    select j.id, c.id from jobs_workerjob j join jobs_execution c on c.parent_step_id = j.id
     where {{runs_child(j)}} and j.execution_id is null and c.state in {{EXECUTION_TERMINAL}}
)
select id, child from stalled where id > %(after)s order by id limit %(batch)s

-- statement: find_stalled_evaluations
-- List jobs of triggers that have ended but were not evaluated.
-- takes: after uuid, batch bigint
-- returns: id uuid
select j.id
  from jobs_workerjob j
 where j.state in {{TERMINAL}} and not j.passed_on and j.kind = 'TRIGGER' and j.execution_id is null
   and j.id > %(after)s
 order by j.id
 limit %(batch)s

-- statement: reset_execution
-- Reset an open execution to the state before any end was propagated; `propagate_ends` then computes it again. Called
-- under `lock_roots`. `begins` are steps that need no worker and never began; the caller begins those.
-- takes: execution uuid
-- returns: id uuid, begins uuid|null
with stray_steps as (
    update jobs_workerjob j
       set state = 'CANCELLED', finished_at = clock_timestamp(), passed_on = j.is_hook
      from jobs_execution e
     where e.id = %(execution)s and e.state = 'CANCELLING' and j.execution_id = e.id and j.state = 'BLOCKED'
       and not (j.is_hook and {{timed_out(e)}})
),
waiting_steps as (
    update jobs_workerjob j
       set waits_for = (select count(*) from jobs_stepdependency d where d.step_id = j.id)
      from jobs_execution e
     where e.id = %(execution)s and e.state = 'RUNNING' and j.execution_id = e.id and j.state = 'BLOCKED'
       and not j.is_hook
 returning j.id
),
ended_steps as (
    update jobs_workerjob j set passed_on = false
     where j.execution_id = %(execution)s and j.state in {{TERMINAL}} and not j.is_hook
),
steps_without_child as (
    update jobs_workerjob p
       set state = 'FAILED', finished_at = clock_timestamp(),
           error = jsonb_build_object('code', 'RESULT_NOT_AVAILABLE', 'message', 'Its child execution does not exist any more')
     where p.execution_id = %(execution)s and {{runs_child(p)}}
       and (select c.id from jobs_execution c where c.parent_step_id = p.id limit 1) is null
),
counted_execution as (
    update jobs_execution e
       set open_steps = (select count(*) from jobs_workerjob j where j.execution_id = e.id and not j.is_hook)
     where e.id = %(execution)s and e.state not in {{EXECUTION_TERMINAL}}
 returning e.id, e.state
),
ended_children as (
    update jobs_execution c set passed_on = false
      from jobs_workerjob p
     where p.execution_id = %(execution)s and p.state = 'RUNNING' and c.parent_step_id = p.id and c.state in {{EXECUTION_TERMINAL}}
),
new_events as (
    insert into jobs_executionevent (execution_id, code, line)
    select id, 'EXECUTION_REPAIRED', 'Repaired: it did not continue after steps of it had ended' from counted_execution
)
select counted_execution.id, j.id as begins
  from counted_execution
  left join jobs_workerjob j
    on j.execution_id = counted_execution.id and counted_execution.state = 'RUNNING' and j.state = 'PENDING'
   and {{needs_no_worker(j)}} and j.parked_by is null

-- statement: reset_child
-- Mark the end of a child as not propagated, so that `propagate_ends` ends the job it belongs to. Called under
-- `lock_roots`.
-- takes: child uuid
-- returns: id uuid
update jobs_execution c set passed_on = false where c.id = %(child)s and c.state in {{EXECUTION_TERMINAL}} returning c.id
