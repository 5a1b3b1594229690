/* the end of job j moves nothing on; or the caller sees to what it moves on, in the same transaction */
(%(with_consequences)s or j.execution_id is null and j.kind = 'TASK')
