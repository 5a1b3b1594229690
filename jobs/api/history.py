"""`GET /instance/history`: ended jobs, waiting times and lost servers, as in the charts of the Instance page."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.rest import ChoiceField, StrictSerializer, TextField, TimeField
from jobs.api.instance import InstanceFilter
from jobs.history import DEFAULT_WINDOW, KEYS_KEPT, WINDOWS, Dimension, Window
from jobs.selectors.history import read_history, read_history_by
from liveness.api.access import RoleCall
from liveness.models import Role


class HistoryFilter(StrictSerializer):
    window = ChoiceField([*WINDOWS], default=DEFAULT_WINDOW, help_text="Period before now.")


class HistoryOfCluster(HistoryFilter, InstanceFilter):
    cluster = TextField(required=False, help_text="Only jobs whose last attempt was in this cluster.")


class Ended(serializers.Serializer):
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    expired = serializers.IntegerField()
    skipped = serializers.IntegerField()


class Waited(serializers.Serializer):
    waited_p50_seconds = serializers.FloatField(
        source="waited_p50",
        allow_null=True,
        help_text="Median of the time for which ended jobs last waited for a worker, exact within 9 per cent. Null: no "
        "job ended.",
    )
    waited_p95_seconds = serializers.FloatField(source="waited_p95", allow_null=True)


class HistoryPointAnswer(Waited):
    at = TimeField(help_text="Start of the step.")
    ended = Ended(help_text="Jobs that ended within the step, by outcome.")
    servers_lost = serializers.IntegerField(source="lost")
    attempts_moved = serializers.IntegerField(source="moved", help_text="Running attempts that were resubmitted.")
    waiting = serializers.FloatField(allow_null=True, help_text="Waiting jobs on average. Null: not counted.")
    running = serializers.FloatField(allow_null=True)
    slots_used = serializers.FloatField(allow_null=True, help_text="Used slots of alive workers.")
    slots_free = serializers.FloatField(allow_null=True, help_text="Free slots of workers that may get work.")


class HistoryAnswer(serializers.Serializer):
    at = TimeField(source="now")
    window = serializers.CharField(source="window.name")
    step_seconds = serializers.IntegerField(source="window.step")
    points = HistoryPointAnswer(many=True, help_text="Oldest first; the last one is not complete yet.")


class KeyHistoryAnswer(Waited):
    key = serializers.CharField(help_text="Tag or action. Empty: all except the most frequent ones.")
    jobs = serializers.IntegerField(help_text="Number of ended jobs.")
    ended = Ended()
    failure_rate = serializers.FloatField(
        allow_null=True, help_text="Share of failed jobs among those that completed or failed. Null: there are none."
    )
    took_p50_seconds = serializers.FloatField(
        source="took_p50",
        allow_null=True,
        help_text="Median of the time for which their code ran in the last attempt. Null: it never ran.",
    )
    took_p95_seconds = serializers.FloatField(source="took_p95", allow_null=True)


class KeyHistoryList(serializers.Serializer):
    window = serializers.CharField()
    items = KeyHistoryAnswer(many=True, help_text="Most failures first.")
    more = serializers.IntegerField(help_text="Number of items that are left out.")


def chosen_window(request: Request) -> Window:
    query = HistoryFilter(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    return WINDOWS[query.validated_data["window"]]


class HistoryView(RoleCall):
    """`GET /instance/history`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[HistoryOfCluster], responses=HistoryAnswer)
    def get(self, request: Request) -> Response:
        """Return counts of ended jobs, their waiting times, waiting and running jobs, and lost servers, over time."""
        query = HistoryOfCluster(data=request.query_params.dict())
        cluster = query.read_cluster()
        return Response(represent(HistoryAnswer, read_history(WINDOWS[query.validated_data["window"]], cluster)))


class HistoryByKeyView(RoleCall):
    """`GET /instance/history/actions` and `/instance/history/tags`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}
    dimension: Any = None

    @extend_schema(parameters=[HistoryFilter], responses=KeyHistoryList)
    def get(self, request: Request) -> Response:
        """Return counts of ended jobs and their durations. Periods of a day or a week start at a full hour."""
        window = chosen_window(request)
        items, more = read_history_by(self.dimension, window, KEYS_KEPT)
        return Response(represent(KeyHistoryList, {"window": window.name, "items": items, "more": more}))


class HistoryByActionView(HistoryByKeyView):
    """`GET /instance/history/actions`."""

    dimension = Dimension.ACTION


class HistoryByTagView(HistoryByKeyView):
    """`GET /instance/history/tags`."""

    dimension = Dimension.TAG
