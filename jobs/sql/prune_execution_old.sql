/* execution e began a tree that is past its retention: all of it has ended, hooks too */
(e.finished_at < %(executions)s and e.root_id = e.id
 and not exists (select from jobs_execution c join jobs_workerjob j on j.execution_id = c.id
                  where c.root_id = e.id and j.state not in {{TERMINAL}}))
