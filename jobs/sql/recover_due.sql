with {{lost}} select job_id as id from held
