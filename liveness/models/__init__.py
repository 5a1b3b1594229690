"""Servers, their heartbeats and events, and the tokens that API calls carry."""

from liveness.models.access import DEFAULT_NAMESPACE, OF_NAMESPACE, OWN_DIGEST, PROJECT_DIGEST, ApiToken, Role, SignIn
from liveness.models.instance import Brake, Clock, ClusterMaintenance, Instance, Timetable
from liveness.models.records import Heartbeat, LeftOut, ServerEvent, Tally
from liveness.models.servers import Server, ServerQuerySet

__all__ = [
    "DEFAULT_NAMESPACE",
    "OF_NAMESPACE",
    "OWN_DIGEST",
    "PROJECT_DIGEST",
    "ApiToken",
    "Brake",
    "Clock",
    "ClusterMaintenance",
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
]
