"""`GET /instance`: the state of the whole control plane, as on the Instance page."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.rest import ChoiceField, StrictSerializer, TextField, TimeField
from jobs import verdict
from jobs.api.serializers.attempts import ServerName
from jobs.api.serializers.holds import HoldAnswer
from jobs.selectors.holds import holds_in_force, holds_with_parked
from jobs.selectors.instance import instance_figures
from jobs.selectors.servers import servers_needing_attention
from jobs.states import JobState
from liveness.api.access import RoleCall
from liveness.api.serializers.operations import Maintenance
from liveness.api.serializers.servers import NextTransition
from liveness.errors import NoSuchCluster
from liveness.models import Brake, Role
from liveness.selectors.clusters import is_known_cluster
from liveness.selectors.counts import server_counts_by_state, server_counts_by_type
from liveness.selectors.next_transition import next_transition
from liveness.selectors.servers import TimedServer


class ServerCount(serializers.Serializer):
    cluster = serializers.CharField()
    type = serializers.CharField()
    state = serializers.CharField()
    servers = serializers.IntegerField()
    heard = serializers.IntegerField(
        help_text="Number of fresh servers: their last heartbeat is within STALENESS_MULTIPLIER intervals."
    )


class ObservedClock(serializers.Serializer):
    reading_seconds = serializers.FloatField(source="observed")
    lag_seconds = serializers.FloatField(source="observed_lag", help_text="Seconds since it last advanced.")
    moves = serializers.BooleanField(source="witnessed", help_text="Heartbeats could arrive at the last check.")


class LastCheck(serializers.Serializer):
    age_seconds = serializers.FloatField(
        source="check_age", allow_null=True, help_text="Seconds since it succeeded. Null: none has."
    )
    took_seconds = serializers.FloatField(source="took", allow_null=True)


class BrakeAnswer(serializers.ModelSerializer):
    cluster = serializers.CharField(allow_null=True, help_text="Cluster that it holds. Null: all clusters.")

    class Meta:
        model = Brake
        fields = ("type", "namespace", "cluster", "engaged_at", "silent", "alive")


class Attention(serializers.Serializer):
    server = serializers.SerializerMethodField()
    type = serializers.CharField()
    cluster = serializers.CharField()
    state = serializers.CharField()
    late = serializers.BooleanField(source="silent", help_text="Alive, and no heartbeat for two intervals.")
    silence_seconds = serializers.FloatField(source="silence")
    held = serializers.IntegerField(help_text="Number of attempts that it holds.")
    next_transition = serializers.SerializerMethodField()

    @extend_schema_field(ServerName)
    def get_server(self, server: TimedServer) -> dict[str, Any]:
        return {"id": server.pk, "name": server.name}

    @extend_schema_field(NextTransition(allow_null=True))
    def get_next_transition(self, server: TimedServer) -> dict[str, Any] | None:
        return next_transition(server)


class ConcernAnswer(serializers.Serializer):
    kind = serializers.CharField(
        help_text="check, silent, lost, ending, no_matching_worker, no_server, no_worker, no_worker_takes_work,"
        " waits_for_maintenance, a flag of jobs, quarantine, failures, oldest_waiting, oldest_snapshot, hold_open,"
        " cordoned, draining or incident."
    )
    tone = ChoiceField(["bad", "worry", "note"], help_text="note: intended, or only worth knowing.")
    text = serializers.CharField(help_text="For people.")
    jobs = serializers.IntegerField(allow_null=True, help_text="Number of affected jobs.")
    servers = serializers.IntegerField(allow_null=True, help_text="Number of affected servers.")
    seconds = serializers.FloatField(
        allow_null=True, help_text="Seconds until the next event; negative: since it happened. Null: not known."
    )


class VerdictAnswer(serializers.Serializer):
    tone = ChoiceField(["bad", "worry", "well"])
    headline = serializers.CharField(help_text="Worst concern in a few words, or the number of alive servers.")
    text = serializers.CharField(help_text="Text of the Instance page.")
    concerns = ConcernAnswer(many=True)
    last_incident = ConcernAnswer(
        source="incident", allow_null=True, help_text="Last ended incident of the past 7 days."
    )


class InstanceAnswer(serializers.Serializer):
    at = TimeField(source="now")
    verdict = VerdictAnswer()
    servers = ServerCount(many=True, help_text="Servers that are not INACTIVE.")
    jobs = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Number of jobs in each state; for a cluster only PENDING, CLAIMED and RUNNING.",
    )
    about = serializers.ListField(
        child=serializers.CharField(),
        help_text="States whose number of jobs is an estimate of the database, because it is large.",
    )
    flagged = serializers.DictField(
        source="flags",
        child=serializers.IntegerField(),
        help_text="Number of jobs that make no progress until somebody acts, by flag.",
    )
    oldest_pending_seconds = serializers.FloatField(source="waiting", allow_null=True)
    observed_clock = ObservedClock(source="*")
    last_check = LastCheck(source="*")
    brakes = BrakeAnswer(many=True)
    maintenance = Maintenance(allow_null=True, help_text="Maintenance of the whole control plane.")
    clusters_in_maintenance = Maintenance(many=True)
    holds = HoldAnswer(many=True, help_text="Holds in force, latest first; up to 100.")
    attention = Attention(many=True, help_text="Up to 100 servers; the most urgent first.")


HOLDS_LISTED = 100


class InstanceFilter(StrictSerializer):
    cluster = TextField(
        required=False,
        help_text="Only this cluster: its servers, the jobs that they hold, and waiting jobs that its workers could "
        "take. `GET /instance/history` has its ended jobs.",
    )

    def read_cluster(self) -> str:
        """Return the requested cluster, or an empty text for all. Raise NoSuchCluster."""
        self.is_valid(raise_exception=True)
        cluster: str = self.validated_data.get("cluster", "")
        if cluster and not is_known_cluster(cluster):
            raise NoSuchCluster(f"No server of the cluster {cluster} is known. Check the name.")
        return cluster


class InstanceView(RoleCall):
    """`GET /instance`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[InstanceFilter], responses=InstanceAnswer)
    def get(self, request: Request) -> Response:
        """Return counts of servers and jobs by state, the state of the control plane itself, and urgent servers."""
        cluster = InstanceFilter(data=request.query_params.dict()).read_cluster()
        figures = instance_figures(cluster=cluster)
        attention = servers_needing_attention(cluster=cluster)
        by_type = server_counts_by_type(cluster)
        counted = JobState if not cluster else (JobState.PENDING, JobState.CLAIMED, JobState.RUNNING)
        shown = {
            **figures,
            "verdict": verdict.build_verdict(figures, by_type, attention),
            "jobs": {state.value: figures["counts"].get(state, 0) for state in counted},
            "maintenance": next((row for row in figures["maintenances"] if row["cluster"] is None), None),
            "clusters_in_maintenance": [row for row in figures["maintenances"] if row["cluster"] is not None],
            "servers": server_counts_by_state(cluster),
            "attention": attention,
            "holds": list_holds() if figures["holds"] else [],
        }
        return Response(represent(InstanceAnswer, shown))


def list_holds() -> list[Any]:
    """Return the latest holds in force, each with the number of jobs that it parks."""
    return holds_with_parked(holds_in_force().order_by("-pk")[:HOLDS_LISTED])
