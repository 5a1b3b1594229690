-- Hold the jobs of attempts that are reported on too late: keep_late.sql then sees what others have just kept.
select j.id from jobs_workerjob j where j.id = any({{reported_jobs}}) order by j.id for no key update
