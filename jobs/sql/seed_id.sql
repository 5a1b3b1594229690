/* a version 7 UUID as it would have been made at the moment `born` */
encode(overlay(
    uuid_send(uuid7()) placing substring(int8send((extract(epoch from born) * 1000)::bigint) from 3) from 1 for 6),
    'hex')::uuid
