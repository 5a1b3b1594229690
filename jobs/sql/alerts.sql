-- statement: read_alert_facts
-- Read lost servers by cluster, and clusters whose alive workers run several versions. The alert rules use this. A
-- server counts as lost until it is retired and holds nothing. With the restart strategy NEVER, this needs an operator.
-- A loss within the last `lately` seconds also counts if the server is already retired, until an incident has named it.
-- `losses` are the keys of the losses, `servers` the first ten servers.
-- takes: lately float8
-- returns: rule text, cluster text, number bigint, names text[], servers jsonb|null, losses text[]
-- row: AlertFact
with recent_losses as (
    select e.id, e.server_id from liveness_serverevent e
     where {{liveness.is_loss(e)}} and e.at > clock_timestamp() - make_interval(secs => %(lately)s)
),
lost as (
    select s.id, coalesce(last_loss.id::text, s.id::text) as loss
      from liveness_server s
      left join lateral (
           select e.id from liveness_serverevent e
            where e.server_id = s.id and {{liveness.is_loss(e)}} order by e.id desc limit 1) last_loss on true
     where s.state in {{LOST}}
        or (s.worker_task_restart_strategy = 'NEVER' and s.state not in {{ALIVE}}
            and exists (select from jobs_attempt a where a.server_id = s.id and {{is_live(a)}}))
    union
    select r.server_id, r.id::text
      from recent_losses r join liveness_server s on s.id = r.server_id
     where not exists (
           select from jobs_incident i
            where i.rule = 'server_lost' and i.subject = s.cluster and r.id::text = any(i.items))
)
select 'server_lost' as rule, s.cluster, count(distinct s.id) as number,
       (array_agg(distinct s.name))[1:10] as names,
       (select jsonb_agg(to_jsonb(few)) from (
            select t.id, t.name, t.hostname from liveness_server t
             where t.id = any(array_agg(s.id)) order by t.name, t.id limit 10) few) as servers,
       (array_agg(lost.loss))[1:1000] as losses
  from lost join liveness_server s using (id) group by s.cluster
 union all
select 'version_skew', cluster, count(distinct version), array_agg(distinct version), null, '{}'
  from liveness_server
 where type = 'WORKER' and state in {{ALIVE}} and version <> ''
 group by cluster having count(distinct version) > 1

-- statement: read_stuck_jobs
-- Read jobs that will not move until a person acts: by flag the number, the newest ids and the names of ten jobs.
-- takes: flags text[], only uuid[], scan_limit bigint, unmatched_after float8, wait_after_loss bool,
--   fails_stale_running bool, running_stale_after float8, requeues_stale_claimed bool, claimed_stale_after float8
-- returns: flag text, number bigint, ids text[], jobs jsonb
-- row: StuckJobs
with recursive {{pending_tag_sets}},
{{jobs_without_worker}},
{{flagged_jobs}},
chosen as (
    select flagged.flag, j.id, {{title_of(j)}} as name,
           row_number() over (partition by flagged.flag order by j.id desc) as place
      from flagged join jobs_workerjob j using (id)
     where flagged.flag = any(%(flags)s::text[])
)
select flag, count(*) as number, array_agg(id::text order by place) filter (where place <= 1000) as ids,
       jsonb_agg(jsonb_build_object('id', id, 'name', name) order by place) filter (where place <= 10) as jobs
  from chosen group by flag order by flag

-- statement: read_quarantined_jobs
-- Read the newest jobs in quarantine, with their names.
-- takes: most bigint
-- returns: id uuid, name text
-- row: QuarantinedJob
select j.id, {{title_of(j)}} as name
  from jobs_workerjob j where {{is_quarantined(j)}} order by j.id desc limit %(most)s

-- statement: note_incidents
-- Open, update and end incidents, and write messages for the channels, in one statement. Called by one process at a
-- time.
-- 1. A condition without an open incident opens one. An open incident keeps the worst summary that was found.
-- 2. A condition that is not found any more ends its incident after `settle_after` seconds. A loss ends at once, unless
--    there were several losses within the hour.
-- 3. A message is written for a new incident, or when its mute ends. Further messages follow for new items of an open
--    incident. Their gap grows by `update_gap` seconds with each message, up to `longest_gap`.
-- 4. The message about the end goes to the channels that got an earlier message.
-- takes: found jsonb, settle_after float8, update_gap float8, longest_gap float8, channels text[], name text
-- returns: opened bigint, ended bigint, messages bigint, announced uuid[], updated uuid[]
-- row: NotedIncidents
with found as (
    select * from jsonb_to_recordset(%(found)s::jsonb)
             as f(rule text, subject text, summary text, details jsonb, severity text, url text, items text[])
),
seen as (
    insert into jobs_incident as i (rule, subject, summary, details, severity, url, items)
    select rule, subject, summary, details, severity, url, items from found order by rule, subject
        on conflict (rule, subject) where ended_at is null do update
       set seen_at = clock_timestamp(),
           severity = excluded.severity,
           url = excluded.url,
           -- No message has named these items yet; the first message will.
           items = case when i.announced_at is null then excluded.items else i.items end,
           (summary, details) = (select f.summary, f.details
                                   from (values (i.summary, i.details, 1), (excluded.summary, excluded.details, 2))
                                        as f(summary, details, place)
                                  order by {{size_of(f)}} desc, place desc limit 1)
 returning i.*, i.xmax = 0 as is_new
),
not_muted as (
    select seen.* from seen
     where not exists (
           select from jobs_alertmute m where m.rule in (seen.rule, 'all') and m.until > clock_timestamp())
),
to_announce as (
    -- An incident that opened while no channel was configured is not announced later.
    select * from not_muted
     where announced_at is null
       and (is_new or exists (
            select from jobs_alertmute m where m.rule in (not_muted.rule, 'all') and m.until >= not_muted.opened_at))
),
to_update as (
    select n.id, n.rule, n.subject, n.severity, n.url, n.opened_at, n.updates + 1 as number, f.summary, f.details
      from not_muted n join found f on (f.rule, f.subject) = (n.rule, n.subject)
     where not n.is_new and n.announced_at is not null and not f.items <@ n.items
       and clock_timestamp() >= coalesce(n.updated_at, n.opened_at)
                                + make_interval(secs => least(n.updates * %(update_gap)s::float8, %(longest_gap)s::float8))
),
ended_incidents as (
    update jobs_incident i set ended_at = clock_timestamp()
     where i.ended_at is null
       and i.seen_at <= clock_timestamp() - make_interval(secs => case
           when i.rule <> 'server_lost' then %(settle_after)s::float8
           else least(%(settle_after)s::float8 * (
                select greatest(count(*) - 2, 0) from jobs_incident before
                 where before.rule = i.rule and before.subject = i.subject and before.id <> i.id
                   and before.opened_at > clock_timestamp() - interval '1 hour'), %(longest_gap)s::float8) end)
       and not exists (select from found f where (f.rule, f.subject) = (i.rule, i.subject))
 returning i.*
),
changes as (
    select id, 'opened' as event, 0 as number, rule, subject, severity, url, summary, details, opened_at, ended_at
      from to_announce
    union all
    select id, 'updated', number, rule, subject, severity, url, summary, details, opened_at, null from to_update
    union all
    select id, 'ended', 0, rule, subject, severity, url, summary, details, opened_at, ended_at from ended_incidents
),
messages as (
    insert into jobs_alertmessage (incident_id, event, number, channel, payload)
    select changes.id, changes.event, changes.number, given.channel, jsonb_build_object(
               'type', 'incident.' || changes.event,
               'timestamp', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'data', jsonb_build_object(
                   'instance', %(name)s::text, 'incident', changes.id, 'rule', changes.rule, 'subject', changes.subject,
                   'severity', changes.severity, 'url', nullif(changes.url, ''), 'reason', changes.details -> 'reason',
                   'summary', changes.summary, 'details', changes.details,
                   'opened_at', to_char(changes.opened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                   'ended_at', to_char(changes.ended_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
      from changes cross join unnest(%(channels)s::text[]) given (channel)
     where changes.event <> 'ended'
        or exists (select from jobs_alertmessage m where m.incident_id = changes.id and m.channel = given.channel)
        on conflict (incident_id, event, number, channel) do nothing
 returning id
)
select (select count(*) from seen where is_new) as opened, (select count(*) from ended_incidents) as ended,
       (select count(*) from messages) as messages, array(select id from to_announce) as announced,
       array(select id from to_update) as updated

-- statement: mark_announced
-- Record which incidents have messages, and the items that these name. Called after `note_incidents`, in the same
-- transaction.
-- takes: found jsonb, announced uuid[], updated uuid[]
-- returns: id uuid
with found as (
    select * from jsonb_to_recordset(%(found)s::jsonb) as f(rule text, subject text, items text[])
)
update jobs_incident i
   set announced_at = coalesce(i.announced_at, clock_timestamp()),
       items = case when cardinality(i.items) < 1000 then array(select unnest(i.items) union select unnest(found.items))
                    else found.items end,
       updates = i.updates + (i.id = any(%(updated)s::uuid[]))::int,
       updated_at = case when i.id = any(%(updated)s::uuid[]) then clock_timestamp() else i.updated_at end
  from found
 where i.id = any(%(announced)s::uuid[] || %(updated)s::uuid[]) and (found.rule, found.subject) = (i.rule, i.subject)
returning i.id

-- statement: lease_message
-- Lease the next due messages to the caller: those of alerts, or notifications of ends, a few of each token. The lease
-- is a minute, and longer with each try. If the process of the caller ends first, another process sends the message
-- again, with the same id.
-- takes: only uuid, are_notifications bool, most bigint
-- returns: id uuid, event text, channel text, payload jsonb, tries int, created_at timestamptz, url text|null, token uuid|null
-- row: LeasedMessage
with due_alerts as materialized (
    select id from jobs_alertmessage
     where next_try_at is not null and url is null and next_try_at <= clock_timestamp()
       and (%(only)s::uuid is null or id = %(only)s) and not %(are_notifications)s
     order by next_try_at limit %(most)s
       for no key update skip locked
),
due_notifications as materialized (
    select own.id
      from liveness_apitoken token
     cross join lateral (
           select m.id, m.next_try_at from jobs_alertmessage m
            where m.token_id = token.id and m.next_try_at is not null and m.url is not null
              and m.next_try_at <= clock_timestamp() and %(are_notifications)s
            order by m.next_try_at limit 4
              for no key update skip locked) own
     order by own.next_try_at limit %(most)s
),
due as (
    select id from due_alerts union all select id from due_notifications
)
update jobs_alertmessage m
   set tries = m.tries + 1,
       next_try_at = clock_timestamp() + make_interval(secs => least(60 * power(2, m.tries), 3600))
  from due
 where m.id = any(array[due.id])
returning m.id, m.event, m.channel, m.payload, m.tries, m.created_at, m.url, m.token_id as token

-- statement: note_delivery
-- Record the result of a try: sent (no error) or failed. A message is given up if the failure is final, or if it is
-- older than `given_up_after` seconds. A message that was not tried is due again in 10 seconds.
-- takes: error text, is_final bool, given_up_after float8, was_tried bool, message uuid
-- returns: sent_at timestamptz|null, next_try_at timestamptz|null
-- row: NotedDelivery
update jobs_alertmessage m
   set sent_at = case when %(error)s::text is null then clock_timestamp() end,
       error = coalesce(%(error)s, ''),
       tries = m.tries - (not %(was_tried)s::bool)::int,
       next_try_at = case when %(error)s is null or %(is_final)s then null
                          when not %(was_tried)s then clock_timestamp() + interval '10 seconds'
                          when m.created_at < clock_timestamp() - make_interval(secs => %(given_up_after)s) then null
                          else m.next_try_at end
 where m.id = %(message)s and m.sent_at is null
returning m.sent_at, m.next_try_at

-- statement: delete_old_alerts
-- Delete incidents that ended more than `kept` seconds ago, with their messages, and test messages of that age. Delete
-- notifications after `notifications_kept` seconds.
-- takes: kept float8, notifications_kept float8
-- returns: id uuid
with old_tests as (
    delete from jobs_alertmessage m
     where m.event = 'test' and m.created_at < clock_timestamp() - make_interval(secs => %(kept)s)
),
old_notifications as (
    delete from jobs_alertmessage m
     where m.id = any(array(
           select n.id from jobs_alertmessage n
            where n.url is not null and n.created_at < clock_timestamp() - make_interval(secs => %(notifications_kept)s)
            order by n.created_at limit 1000 for update skip locked))
),
old_messages as (
    delete from jobs_alertmessage m
     where m.incident_id = any(array(
           select i.id from jobs_incident i where i.ended_at < clock_timestamp() - make_interval(secs => %(kept)s)))
)
delete from jobs_incident i where i.ended_at < clock_timestamp() - make_interval(secs => %(kept)s)
returning i.id

-- statement: read_channels
-- Read the time and the channels that people added, for the page of alerts.
-- returns: now timestamptz, channels jsonb
-- row: AddedChannels
select clock_timestamp() as now,
       (select coalesce(jsonb_agg(jsonb_build_object('id', c.id, 'kind', c.kind, 'address', c.address) order by c.id), '[]')
          from jobs_alertchannel c) as channels

-- statement: mute_alerts
-- Mute a rule for `seconds` seconds, so that it sends no messages; 0 ends the mute.
-- takes: rule text, seconds float8, by text, note text
-- returns: until timestamptz
-- row: MutedAlerts
insert into jobs_alertmute (rule, until, by, note)
values (%(rule)s, clock_timestamp() + make_interval(secs => %(seconds)s), %(by)s, %(note)s)
    on conflict (rule) do update set until = excluded.until, by = excluded.by, note = excluded.note
returning until

-- statement: send_message_again
-- Make a message that was given up due again. `token` is that of the client whose notification it must be (null: any).
-- takes: message uuid, token uuid, namespaces text[]
-- returns: id uuid
update jobs_alertmessage m
   set next_try_at = clock_timestamp(), tries = 0
 where m.id = %(message)s and m.sent_at is null and m.next_try_at is null
   and (%(token)s::uuid is null or m.token_id = %(token)s)
   and (%(namespaces)s::text[] is null or m.namespace = any(%(namespaces)s))
returning m.id
