"""Recovery by hand, as Horsies has it: list what is stale, requeue stale claims, fail stale runners."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.rest import SecondsField, StrictSerializer
from jobs.conf import conf
from jobs.services import sweep
from liveness.api.access import RoleCall
from liveness.models import Role
from liveness.services.operations import actor


class StaleFilter(StrictSerializer):
    claimed_older_than_seconds = serializers.FloatField(required=False, min_value=0, max_value=366 * 86400)
    running_older_than_seconds = serializers.FloatField(required=False, min_value=0, max_value=366 * 86400)


class StaleAttempt(serializers.Serializer):
    attempt = serializers.UUIDField()
    number = serializers.IntegerField()
    state = serializers.CharField()
    job = serializers.UUIDField()
    server = serializers.DictField()
    hostname = serializers.CharField()
    pid = serializers.IntegerField(allow_null=True)
    silence_seconds = serializers.FloatField(help_text="Observed time since its last sign of life.")


class StaleList(serializers.Serializer):
    items = StaleAttempt(many=True)
    next = serializers.CharField(allow_null=True)


class Threshold(StrictSerializer):
    older_than_seconds = SecondsField(help_text="Without a sign of life for longer than this.")


class Count(serializers.Serializer):
    count = serializers.IntegerField()


class Stale(RoleCall):
    """`GET /recovery/stale`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[StaleFilter], responses=StaleList)
    def get(self, request: Request) -> Response:
        """Live attempts without a sign of life for longer than the thresholds, at most 500, the most silent first."""
        asked = StaleFilter(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        found = sweep.stale(
            asked.validated_data.get("claimed_older_than_seconds", conf().claimed_stale_after),
            asked.validated_data.get("running_older_than_seconds", conf().running_stale_after),
        )
        return Response({"items": [self.written(row) for row in found], "next": None})

    def written(self, row: Any) -> dict[str, Any]:
        return {
            "attempt": row.id,
            "number": row.number,
            "state": row.state,
            "job": row.job,
            "server": {"id": row.server, "name": row.server_name},
            "hostname": row.hostname,
            "pid": row.pid,
            "silence_seconds": row.silence,
        }


class ByHand(RoleCall):
    """What an operator does to everything stale; it does what it says, whatever the settings say."""

    roles = {"POST": {Role.OPERATOR}}

    def older_than(self, request: Request) -> float:
        said = Threshold(data=request.data)
        said.is_valid(raise_exception=True)
        seconds: float = said.validated_data["older_than_seconds"]
        return seconds


class RequeueStaleClaimed(ByHand):
    """`POST /recovery/requeue-stale-claimed`."""

    @extend_schema(request=Threshold, responses=Count)
    def post(self, request: Request) -> Response:
        """Give stale claims back to the queue: their code never began."""
        count = sweep.requeue_stale_claimed(self.older_than(request), actor(self.token.name))
        return Response({"count": count})


class FailStaleRunning(ByHand):
    """`POST /recovery/fail-stale-running`."""

    @extend_schema(request=Threshold, responses=Count)
    def post(self, request: Request) -> Response:
        """Fail stale running attempts and their jobs with WORKER_CRASHED."""
        count = sweep.fail_stale_running(self.older_than(request), actor(self.token.name))
        return Response({"count": count})
