"""`GET /servers/{id}/hints`: an idle worker waits until there may be work for it.

Django does not wait; see controlplane.core.long_polls. The RSGI application in front of it holds the response back
until a job of the server's namespace waits that needs no other tags than the server has.
"""

import json
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.long_polls import WaitField, mark_not_yet
from controlplane.core.rest import StrictSerializer
from jobs.services import hints
from liveness.api.access import ServerCall

TAGS, NAMESPACE = "Waits-For-Tags", "Waits-In-Namespace"
"""Headers of a response that may be held back: the tags and the namespace of the server, as JSON."""


class HintQuery(StrictSerializer):
    wait = WaitField(help_text="Respond when there may be work, or after so many seconds.")


class HintAnswer(serializers.Serializer):
    work = serializers.BooleanField(help_text="True: jobs wait that need only tags of this server; claim now.")
    jobs = serializers.IntegerField(
        required=False,
        help_text="Number of jobs to claim if present: the share of this worker. Other idle workers get the rest.",
    )


class HintsView(ServerCall):
    """`GET /servers/{id}/hints`."""

    @extend_schema(parameters=[HintQuery], responses=HintAnswer)
    def get(self, request: Request, server: UUID) -> Response:
        """Return whether there may be work for the worker. With `wait`, wait for it. Only a claim gets the work."""
        query = HintQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        offer = hints.read_server_offer(self.server_token)
        response = Response({"work": offer.has_work})
        if not offer.has_work and query.validated_data["wait"]:
            mark_not_yet(response, query.validated_data["wait"])
            response[TAGS], response[NAMESPACE] = json.dumps(offer.tags), json.dumps(offer.namespace)
        return response
