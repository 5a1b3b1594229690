-- The end of an execution is to be heard once more by the job whose run it was; its root is held.
update jobs_execution c set passed_on = false where c.id = %(child)s and c.state in {{OVER}} returning c.id
