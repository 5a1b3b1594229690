-- What one server says of itself.
said as (
    select %(server)s::uuid as id, %(version)s::int as version, %(metrics)s::jsonb as metrics,
           %(schedulable)s::bool as schedulable, %(reason)s::text as reason, %(witness)s::bool as witness
)
