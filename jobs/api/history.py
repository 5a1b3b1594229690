"""`GET /instance/history`: what ended, waited and was lost, as the charts of the Instance page draw it."""

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
    window = ChoiceField([*WINDOWS], default=DEFAULT_WINDOW, help_text="How far back, from now.")


class HistoryOfCluster(HistoryFilter, InstanceFilter):
    cluster = TextField(required=False, help_text="Of the jobs whose last attempt was in this cluster.")


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
        help_text="How long the jobs that ended had last waited for a worker: half of them no longer than this. Within "
        "9 per cent. Null: none did.",
    )
    waited_p95_seconds = serializers.FloatField(source="waited_p95", allow_null=True)


class HistoryPoint(Waited):
    at = TimeField(help_text="When the step began.")
    ended = Ended(help_text="Jobs that ended within the step, by outcome.")
    servers_lost = serializers.IntegerField(source="lost")
    attempts_moved = serializers.IntegerField(source="moved", help_text="Running attempts that were resubmitted.")
    waiting = serializers.FloatField(allow_null=True, help_text="Jobs, on average. Null: nobody looked.")
    running = serializers.FloatField(allow_null=True)
    slots_used = serializers.FloatField(allow_null=True, help_text="Of alive workers.")
    slots_free = serializers.FloatField(allow_null=True, help_text="Of workers that take work.")


class HistoryAnswer(serializers.Serializer):
    at = TimeField(source="now")
    window = serializers.CharField(source="window.name")
    step_seconds = serializers.IntegerField(source="window.step")
    points = HistoryPoint(many=True, help_text="Oldest first; the last one is not over yet.")


class KeyHistory(Waited):
    key = serializers.CharField(help_text="The tag, or the action. Empty: those beyond the most frequent.")
    jobs = serializers.IntegerField(help_text="That ended.")
    ended = Ended()
    failure_rate = serializers.FloatField(
        allow_null=True, help_text="Of those that completed or failed. Null: none did."
    )
    took_p50_seconds = serializers.FloatField(
        source="took_p50", allow_null=True, help_text="How long their code ran in its last attempt. Null: it never did."
    )
    took_p95_seconds = serializers.FloatField(source="took_p95", allow_null=True)


class KeyHistoryList(serializers.Serializer):
    window = serializers.CharField()
    items = KeyHistory(many=True, help_text="Those with the most failures first.")
    more = serializers.IntegerField(help_text="How many more there are.")


def chosen_window(request: Request) -> Window:
    query = HistoryFilter(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    return WINDOWS[query.validated_data["window"]]


class History(RoleCall):
    """`GET /instance/history`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[HistoryOfCluster], responses=HistoryAnswer)
    def get(self, request: Request) -> Response:
        """How many jobs ended how, how long they had waited, what waited and ran, and which servers were lost."""
        query = HistoryOfCluster(data=request.query_params.dict())
        cluster = query.read_cluster()
        return Response(represent(HistoryAnswer, read_history(WINDOWS[query.validated_data["window"]], cluster)))


class HistoryBy(RoleCall):
    """`GET /instance/history/actions` and `/instance/history/tags`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}
    dimension: Any = None

    @extend_schema(parameters=[HistoryFilter], responses=KeyHistoryList)
    def get(self, request: Request) -> Response:
        """How many jobs ended how, and how long their code ran. Of a day or a week it begins at a full hour."""
        window = chosen_window(request)
        items, more = read_history_by(self.dimension, window, KEYS_KEPT)
        return Response(represent(KeyHistoryList, {"window": window.name, "items": items, "more": more}))


class HistoryByAction(HistoryBy):
    """`GET /instance/history/actions`."""

    dimension = Dimension.ACTION


class HistoryByTag(HistoryBy):
    """`GET /instance/history/tags`."""

    dimension = Dimension.TAG
