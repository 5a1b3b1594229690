/* what keeps all workers from what was `said` (null: nothing): the tags that they are to have, and a filter of
   placement.sql */
(select jsonb_build_object('filter', deserted.filter, 'tags', deserted.need)
   from jsonb_array_elements(said.needs) said_need(need) join deserted using (need) limit 1)
