/* job j is past its retention: its own, or as a step that of the execution that began its tree */
(case when j.execution_id is null then j.finished_at < %(jobs)s
      else (select r.finished_at < %(executions)s from jobs_execution e join jobs_execution r on r.id = e.root_id
             where e.id = j.execution_id) end)
