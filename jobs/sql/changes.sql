-- statement: count_tag_sets
-- Count the sets of required tags of an owner's waiting jobs together with one more set, up to the limit.
-- takes: owner uuid, required_tags text[], tag_sets_limit int
-- returns: tag_sets bigint
-- row: CountedTagSets
with submitted as (select %(owner)s::uuid as owner, %(required_tags)s::text[] as required_tags)
select {{waiting_tag_sets(s)}} as tag_sets from submitted s
