/* server s keeps its state though it is silent, for the brake holds its type */
(s.type in (select brake.type from liveness_brake brake where brake.released_by is null))
