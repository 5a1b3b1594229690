"""`GET /servers/{id}/hints`: an idle worker waits until there may be work for it.

As with the end of a job, no call waits here: see jobs.api.waiting. What stands before Django keeps the answer back
until there is work of its namespace that needs no other tags than the server has.
"""

import json
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.rest import StrictSerializer
from jobs.api.waiting import WaitField, mark_not_yet
from jobs.services import hints
from liveness.api.access import ServerCall

TAGS, NAMESPACE = "Waits-For-Tags", "Waits-In-Namespace"
"""Headers of an answer that may be kept back: the tags and the namespace of the server, as JSON."""


class HintQuery(StrictSerializer):
    wait = WaitField(help_text="Answer when there may be work, or after so many seconds.")


class HintAnswer(serializers.Serializer):
    work = serializers.BooleanField(help_text="Claim now: jobs wait that this server has the tags for.")
    jobs = serializers.IntegerField(
        required=False, help_text="Claim so many, where it is said: its share, the others are for other idle workers."
    )


class Hints(ServerCall):
    """`GET /servers/{id}/hints`."""

    @extend_schema(parameters=[HintQuery], responses=HintAnswer)
    def get(self, request: Request, server: UUID) -> Response:
        """Whether there may be work for the worker; with `wait`, when there may be. A claim alone says what it gets."""
        query = HintQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        offer = hints.read_server_offer(self.server_token)
        response = Response({"work": offer.has_work})
        if not offer.has_work and query.validated_data["wait"]:
            mark_not_yet(response, query.validated_data["wait"])
            response[TAGS], response[NAMESPACE] = json.dumps(offer.tags), json.dumps(offer.namespace)
        return response
