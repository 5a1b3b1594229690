"""Serializers of the placement of a waiting job."""

from rest_framework import serializers

from controlplane.core.rest import (
    ChoiceField,
    TimeField,
)
from jobs.api.serializers.attempts import ServerName


class Candidate(serializers.Serializer):
    server = ServerName()
    load = serializers.FloatField(help_text="Slots that its attempts use, divided by max_concurrent.")
    hint = ChoiceField(
        ["first", "later"],
        help_text="Time of its hint while it waits for work. `first`: at once. `later`: a fraction of a second later,"
        " if no server with less load has claimed the job by then.",
    )


class RuledOut(serializers.Serializer):
    server = ServerName()
    filter = serializers.CharField(
        help_text="First filter that excludes it: type, state, freshness, cordon, maintenance, tags, refused,"
        " slots or capacity."
    )
    detail = serializers.CharField(help_text="Explanation for people.")


class WaitingFor(serializers.Serializer):
    what = serializers.CharField(
        help_text="available_at; hold: it is on `hold`; limit: its key `limit` has no free slot; max_parallel: other"
        " items of the loop `step` must end first; or stop: the code of its last attempt may still run on `server`."
    )
    until = TimeField(allow_null=True)
    hold = serializers.UUIDField(required=False)
    server = ServerName(required=False)
    limit = serializers.CharField(required=False)
    step = serializers.CharField(required=False)


class PlacementAnswer(serializers.Serializer):
    eligible = Candidate(many=True, help_text="Servers that may get the job, least loaded first.")
    ruled_out = RuledOut(many=True)
    waiting_for = WaitingFor(allow_null=True, help_text="Event before which no server gets it.")
