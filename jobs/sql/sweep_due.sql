with {{overdue}} select job_id as id from held
