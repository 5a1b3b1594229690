-- statement: read_alert_facts
-- Lost servers by cluster, and those that run several versions. A loss counts for as long as the server is not retired,
-- and for `lately` seconds, so that one which is quickly over is told all the same.
-- takes: lately float8
-- returns: rule text, cluster text, servers bigint, names text[]
-- row: AlertFact
with lost as (
    select s.id from liveness_server s where s.state in {{LOST}}
    union
    select e.server_id from liveness_serverevent e
     where {{liveness.is_loss(e)}} and e.at > clock_timestamp() - make_interval(secs => %(lately)s)
)
select 'server_lost' as rule, s.cluster, count(*) as servers, (array_agg(s.name order by s.name))[1:10] as names
  from lost join liveness_server s using (id) group by s.cluster
 union all
select 'version_skew', cluster, count(*), array_agg(distinct version order by version)
  from liveness_server
 where type = 'WORKER' and state in {{ALIVE}} and version <> ''
 group by cluster having count(distinct version) > 1

-- statement: note_incidents
-- Open an incident for each of these conditions that has none, note of the others that they are still there and how bad
-- it was at its worst, and end those that have not been found for `settle_after` seconds. Then write a message for each
-- channel: of what nobody was told yet and is not muted, and of the end of what was told.
-- takes: found jsonb, settle_after float8, channels text[], name text
-- returns: opened bigint, ended bigint, messages bigint
-- row: NotedIncidents
with found as (
    select * from jsonb_to_recordset(%(found)s::jsonb) as f(rule text, subject text, summary text, details jsonb)
),
seen as (
    insert into jobs_incident as i (rule, subject, summary, details)
    select rule, subject, summary, details from found order by rule, subject
        on conflict (rule, subject) where ended_at is null do update
       set seen_at = clock_timestamp(),
           (summary, details) = (select f.summary, f.details
                                   from (values (i.summary, i.details, 1), (excluded.summary, excluded.details, 2))
                                        as f(summary, details, place)
                                  order by {{size_of(f)}} desc, place desc limit 1)
 returning i.*, i.xmax = 0 as is_new
),
to_announce as (
    select * from seen
     where announced_at is null
       and not exists (select from jobs_alertmute m
                        where m.rule in (seen.rule, 'all') and m.until > clock_timestamp())
),
over as (
    update jobs_incident i set ended_at = clock_timestamp()
     where i.ended_at is null and i.seen_at <= clock_timestamp() - make_interval(secs => %(settle_after)s)
       and not exists (select from found f where (f.rule, f.subject) = (i.rule, i.subject))
 returning i.*
),
told as (
    select id, 'opened' as event, rule, subject, summary, details, opened_at, ended_at from to_announce
    union all
    select id, 'ended', rule, subject, summary, details, opened_at, ended_at from over where announced_at is not null
),
messages as (
    insert into jobs_alertmessage (incident_id, event, channel, payload)
    select told.id, told.event, channel, jsonb_build_object(
               'type', 'incident.' || told.event,
               'timestamp', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'data', jsonb_build_object(
                   'instance', %(name)s::text, 'incident', told.id, 'rule', told.rule, 'subject', told.subject,
                   'summary', told.summary, 'details', told.details,
                   'opened_at', to_char(told.opened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                   'ended_at', to_char(told.ended_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
      from told cross join unnest(%(channels)s::text[]) channel
        on conflict (incident_id, event, channel) do nothing
 returning id
)
select (select count(*) from seen where is_new) as opened, (select count(*) from over) as ended,
       (select count(*) from messages) as messages

-- statement: mark_announced
-- Open incidents that there is a message of: in the same transaction as `note_incidents`.
-- returns: id uuid
update jobs_incident i set announced_at = clock_timestamp()
 where i.ended_at is null and i.announced_at is null
   and exists (select from jobs_alertmessage m where m.incident_id = i.id)
returning i.id

-- statement: lease_message
-- The next message to send. It is the caller's until it is due again, a minute from now and later with each try: should
-- he die, somebody tries then, under the same id.
-- takes: only uuid
-- returns: id uuid, event text, channel text, payload jsonb, tries int, created_at timestamptz
-- row: LeasedMessage
with due as (
    select id from jobs_alertmessage
     where next_try_at is not null and next_try_at <= clock_timestamp()
       and (%(only)s::uuid is null or id = %(only)s)
     order by next_try_at limit 1
       for no key update skip locked
)
update jobs_alertmessage m
   set tries = m.tries + 1,
       next_try_at = clock_timestamp() + make_interval(secs => least(60 * power(2, m.tries), 3600))
  from due
 where m.id = any(array[due.id])
returning m.id, m.event, m.channel, m.payload, m.tries, m.created_at

-- statement: note_delivery
-- What came of a try: sent (no error), or not. After so many seconds, or where it is final, it is given up.
-- takes: error text, is_final bool, given_up_after float8, message uuid
-- returns: sent_at timestamptz|null, next_try_at timestamptz|null
-- row: NotedDelivery
update jobs_alertmessage m
   set sent_at = case when %(error)s::text is null then clock_timestamp() end,
       error = coalesce(%(error)s, ''),
       next_try_at = case when %(error)s is null or %(is_final)s
                            or m.created_at < clock_timestamp() - make_interval(secs => %(given_up_after)s)
                          then null else m.next_try_at end
 where m.id = %(message)s and m.sent_at is null
returning m.sent_at, m.next_try_at

-- statement: delete_old_alerts
-- Incidents that ended long ago, with their messages; and tests.
-- takes: kept float8
-- returns: id uuid
with old_tests as (
    delete from jobs_alertmessage m
     where m.incident_id is null and m.created_at < clock_timestamp() - make_interval(secs => %(kept)s)
),
old_messages as (
    delete from jobs_alertmessage m
     where m.incident_id = any(array(
           select i.id from jobs_incident i where i.ended_at < clock_timestamp() - make_interval(secs => %(kept)s)))
)
delete from jobs_incident i where i.ended_at < clock_timestamp() - make_interval(secs => %(kept)s)
returning i.id

-- statement: mute_alerts
-- Nobody is told of what a rule finds, for so many seconds; 0: they are told again.
-- takes: rule text, seconds float8, by text, note text
-- returns: until timestamptz
-- row: MutedAlerts
insert into jobs_alertmute (rule, until, by, note)
values (%(rule)s, clock_timestamp() + make_interval(secs => %(seconds)s), %(by)s, %(note)s)
    on conflict (rule) do update set until = excluded.until, by = excluded.by, note = excluded.note
returning until
