/* rows that could not be written within the last hour: the latest few, each with how many there are */
(select jsonb_agg(to_jsonb(lately) || jsonb_build_object('at', to_char(at at time zone 'UTC', 'HH24:MI:SS')) order by at desc)
   from (select l.step, l.row, l.error, l.at, l.times, count(*) over () as count from liveness_leftout l
          where l.at > clock_timestamp() - interval '1 hour' order by l.at desc limit 5) lately)
