"""API call that sends a signal."""

import structlog
from django.db import DatabaseError
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.rest import validate_body
from jobs.api.idempotency import KEY, idempotency_key
from jobs.api.jobs import JobCall
from jobs.api.serializers.signals import SignalAnswer, SignalRequest
from jobs.services import signals, waits
from liveness.api.access import NamespaceQuery, request_credential

log = structlog.get_logger()


class SignalView(JobCall):
    """`POST /signals/{name}`."""

    @extend_schema(
        parameters=[KEY, NamespaceQuery],
        request={"application/json": {"description": "Body of the signal: any JSON of at most 256 KiB."}},
        responses={201: SignalAnswer, 200: SignalAnswer},
    )
    def post(self, request: Request, signal: str) -> Response:
        """Send a signal. Its body becomes the output of each step that waits for it, now or soon."""
        name = validate_body(SignalRequest, {"name": signal})["name"]
        sent, is_new = signals.send_signal(
            request_credential(request).submitter, name, request.data, key=idempotency_key(request),
            namespace=self.namespace,
        )  # fmt: skip
        try:
            waits.deliver_signals()
        except DatabaseError:
            log.exception("A signal could not be delivered at once; the next tick does it", signal=name)
        return Response(represent(SignalAnswer, sent), status=201 if is_new else 200)
