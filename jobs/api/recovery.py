"""Recovery by hand, as Horsies has it: list what is stale, requeue stale claims, fail stale runners."""

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
from controlplane.core.rest import NoteField, SecondsField, StrictSerializer
from jobs.conf import conf
from jobs.services import sweep
from liveness.api.access import RoleCall
from liveness.models import Role
from liveness.services.action_events import format_actor


class PlaceField(serializers.CharField):
    """Where the page before ended: when the last attempt of it was alive, and its id."""

    def to_internal_value(self, data: object) -> Any:
        alive, _, id = str(data).partition("_")
        try:
            place = float(alive), UUID(id)
        except ValueError:
            raise serializers.ValidationError("This is not the `next` of an earlier page.") from None
        if not math.isfinite(place[0]):
            raise serializers.ValidationError("This is not the `next` of an earlier page.")
        return place


class AgeField(serializers.FloatField):
    """Seconds, in an address."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, min_value=0, max_value=LONGEST_WAIT, **options)

    def to_internal_value(self, data: Any) -> float:
        value = super().to_internal_value(data)
        if not math.isfinite(value):
            self.fail("invalid")
        return value


class StaleFilter(StrictSerializer):
    older_than_seconds = AgeField(help_text="Without a sign of life for longer than this (default: the settings).")
    claimed_older_than_seconds = AgeField(help_text="The same, for claimed attempts only.")
    running_older_than_seconds = AgeField(help_text="The same, for running attempts only.")
    cursor = PlaceField(required=False, help_text="`next` of the previous page.")
    limit = PageSizeField()

    def silence_threshold(self, kind: str, usual: float) -> float:
        """Of claimed or of running attempts."""
        filters = self.validated_data
        seconds: float = filters.get(f"{kind}_older_than_seconds", filters.get("older_than_seconds", usual))
        return seconds


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
    next = serializers.CharField(allow_null=True, help_text="The cursor of the next page; null: there is none.")


class Threshold(StrictSerializer):
    older_than_seconds = SecondsField(help_text="Without a sign of life for longer than this.")
    note = NoteField()


class Count(serializers.Serializer):
    count = serializers.IntegerField()


class Stale(RoleCall):
    """`GET /recovery/stale`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[StaleFilter], responses=StaleList)
    def get(self, request: Request) -> Response:
        """Live attempts without a sign of life for longer than the thresholds, the most silent first, by the page."""
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


class ManualRecovery(RoleCall):
    """What an operator does to everything stale; it does what it says, whatever the settings say."""

    is_about_instance = True
    roles = {"POST": {Role.OPERATOR}}

    def act_on_stale_attempts(self, request: Request, action: Callable[..., int]) -> Response:
        body = Threshold(data=request.data)
        body.is_valid(raise_exception=True)
        count = action(
            body.validated_data["older_than_seconds"], format_actor(self.token.name), body.validated_data["note"]
        )
        return Response({"count": count})


class RequeueStaleClaimed(ManualRecovery):
    """`POST /recovery/requeue-stale-claimed`."""

    @extend_schema(request=Threshold, responses=Count)
    def post(self, request: Request) -> Response:
        """Give stale claims back to the queue: their code never began."""
        return self.act_on_stale_attempts(request, sweep.requeue_stale_claimed)


class FailStaleRunning(ManualRecovery):
    """`POST /recovery/fail-stale-running`."""

    @extend_schema(request=Threshold, responses=Count)
    def post(self, request: Request) -> Response:
        """Fail stale running attempts and their jobs with WORKER_CRASHED."""
        return self.act_on_stale_attempts(request, sweep.fail_stale_running)
