"""Manual recovery, as in Horsies: list stale attempts, requeue stale claimed attempts, fail stale running attempts."""

import math
from collections.abc import Callable
from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.durations import LONGEST_WAIT
from controlplane.core.paging import PageSizeField
from controlplane.core.rest import NoteField, SecondsField, StrictSerializer, validate_body
from jobs.conf import conf
from jobs.services import sweep
from liveness.api.access import RoleCall
from liveness.models import Role
from liveness.services.action_events import format_actor


class PlaceField(serializers.CharField):
    """Cursor of a page: the observed time of the last attempt's heartbeat, and its id."""

    def to_internal_value(self, data: object) -> Any:
        alive, _, id = str(data).partition("_")
        try:
            place = float(alive), UUID(id)
        except ValueError:
            raise serializers.ValidationError("The cursor is not the `next` of an earlier page.") from None
        if not math.isfinite(place[0]):
            raise serializers.ValidationError("The cursor is not the `next` of an earlier page.")
        return place


class AgeField(serializers.FloatField):
    """Seconds in a query."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, min_value=0, max_value=LONGEST_WAIT, **options)

    def to_internal_value(self, data: Any) -> float:
        value = super().to_internal_value(data)
        if not math.isfinite(value):
            self.fail("invalid")
        return value


class StaleFilter(StrictSerializer):
    older_than_seconds = AgeField(help_text="Only attempts without a heartbeat for longer (default: the settings).")
    claimed_older_than_seconds = AgeField(help_text="The same, for claimed attempts only.")
    running_older_than_seconds = AgeField(help_text="The same, for running attempts only.")
    cursor = PlaceField(required=False, help_text="`next` of the previous page.")
    limit = PageSizeField()

    def silence_threshold(self, kind: str, usual: float) -> float:
        """Return the threshold in seconds. `kind` is claimed or running, `usual` the value of the settings."""
        filters = self.validated_data
        seconds: float = filters.get(f"{kind}_older_than_seconds", filters.get("older_than_seconds", usual))
        return seconds


class StaleAttemptAnswer(serializers.Serializer):
    attempt = serializers.UUIDField()
    number = serializers.IntegerField()
    state = serializers.CharField()
    job = serializers.UUIDField()
    server = serializers.DictField()
    hostname = serializers.CharField()
    pid = serializers.IntegerField(allow_null=True)
    silence_seconds = serializers.FloatField(help_text="Observed time since its last heartbeat.")


class StaleList(serializers.Serializer):
    items = StaleAttemptAnswer(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")


class Threshold(StrictSerializer):
    older_than_seconds = SecondsField(help_text="Only attempts without a heartbeat for longer.")
    note = NoteField()


class Count(serializers.Serializer):
    count = serializers.IntegerField()


class StaleAttemptsView(RoleCall):
    """`GET /recovery/stale`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[StaleFilter], responses=StaleList)
    def get(self, request: Request) -> Response:
        """Return live attempts without a heartbeat for longer than the thresholds, longest silence first, in pages."""
        query = StaleFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        limit = query.validated_data["limit"]
        rows = sweep.list_stale_attempts(
            query.silence_threshold("claimed", conf().claimed_stale_after),
            query.silence_threshold("running", conf().running_stale_after),
            limit + 1,
            query.validated_data.get("cursor", (None, None)),
        )
        page = rows[:limit]
        cursor = f"{page[-1].alive!r}_{page[-1].id}" if len(rows) > limit else None
        return Response({"items": [self.describe_stale_attempt(row) for row in page], "next": cursor})

    def describe_stale_attempt(self, row: Any) -> dict[str, Any]:
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


class ManualRecoveryCall(RoleCall):
    """Action of an operator on all stale attempts, whatever the settings AUTO_… are."""

    is_about_instance = True
    roles = {"POST": {Role.OPERATOR}}

    def act_on_stale_attempts(self, request: Request, action: Callable[..., int]) -> Response:
        body = validate_body(Threshold, request.data)
        count = action(body["older_than_seconds"], format_actor(self.token.name), body["note"])
        return Response({"count": count})


class RequeueStaleClaimedView(ManualRecoveryCall):
    """`POST /recovery/requeue-stale-claimed`."""

    @extend_schema(request=Threshold, responses=Count)
    def post(self, request: Request) -> Response:
        """Requeue the jobs of stale claimed attempts. Their code never started."""
        return self.act_on_stale_attempts(request, sweep.requeue_stale_claimed)


class FailStaleRunningView(ManualRecoveryCall):
    """`POST /recovery/fail-stale-running`."""

    @extend_schema(request=Threshold, responses=Count)
    def post(self, request: Request) -> Response:
        """Fail stale running attempts and their jobs with WORKER_CRASHED."""
        return self.act_on_stale_attempts(request, sweep.fail_stale_running)
