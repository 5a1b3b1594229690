-- prepared statement: find_api_token
-- Find the API token with this digest, and whether it has expired.
-- takes: digest bytea
-- returns: id uuid, name text, role text, prefix text, namespace text, types text[]|null, tags text[]|null,
--   cluster text|null, max_servers int|null, created_at timestamptz, expires_at timestamptz|null,
--   revoked_at timestamptz|null, is_expired bool
-- row: FoundToken
select t.id, t.name, t.role, t.prefix, t.namespace, t.types, t.tags, t.cluster, t.max_servers, t.created_at, t.expires_at,
       t.revoked_at, coalesce(t.expires_at <= clock_timestamp(), false) as is_expired
  from liveness_apitoken t where t.digest = %(digest)s
