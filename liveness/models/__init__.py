"""Models of servers, their heartbeats and events, and API tokens."""

from liveness.models.access import (
    ALL_NAMESPACES,
    API_PREFIX,
    DEFAULT_NAMESPACE,
    OF_NAMESPACE,
    OWN_DIGEST,
    PROJECT_DIGEST,
    ApiToken,
    Role,
    SignIn,
)
from liveness.models.instance import Brake, Clock, ClusterMaintenance, Instance, Timetable
from liveness.models.records import AttemptHeartbeat, Heartbeat, LeftOut, ServerEvent, Tally
from liveness.models.servers import Server, ServerQuerySet
from liveness.models.timelines import DatabaseTimeline, UnheardServer

__all__ = [
    "ALL_NAMESPACES",
    "API_PREFIX",
    "DEFAULT_NAMESPACE",
    "OF_NAMESPACE",
    "OWN_DIGEST",
    "PROJECT_DIGEST",
    "ApiToken",
    "AttemptHeartbeat",
    "Brake",
    "Clock",
    "ClusterMaintenance",
    "DatabaseTimeline",
    "Heartbeat",
    "Instance",
    "LeftOut",
    "Role",
    "Server",
    "ServerEvent",
    "ServerQuerySet",
    "SignIn",
    "Tally",
    "Timetable",
    "UnheardServer",
]
