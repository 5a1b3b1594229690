-- The sets of tags among what was said that need a worker and find none; a full one counts: it will have room.
deserted as materialized (
    select wanted.required_tags from (select distinct required_tags from said where require_worker) wanted
     where not exists (
        select from liveness_server s
         where {{schedulable}} and s.max_concurrent > 0 and wanted.required_tags <@ s.tags)
)
