-- statement: list_facets
-- What alive servers can be told apart by. Nothing is changed.
-- returns: versions jsonb, tags text[]
-- row: ServerFacets
with alive_servers as materialized (
    select s.cluster, s.type, s.version, s.tags from liveness_server s where s.state in {{ALIVE}}
)
select (select coalesce(jsonb_agg(to_jsonb(counted)), '[]')
          from (select cluster, type, version, count(*) from alive_servers group by 1, 2, 3 order by 1, 2, 3) counted) as versions,
       array(select distinct unnest(tags) as tag from alive_servers order by tag limit 200) as tags

-- statement: list_rows_left_out
-- The same by itself.
-- returns: rows_left_out jsonb|null
select {{rows_left_out}} as rows_left_out
