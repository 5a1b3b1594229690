"""API calls about backfills of triggers. Operators begin and stop them; viewers may only read them."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.rest import validate_body
from jobs import models
from jobs.api.idempotency import KEY, idempotency_key
from jobs.api.serializers.backfills import EXAMPLE, BackfillAnswer, BackfillRequest
from jobs.api.serializers.jobs import NoteRequest
from jobs.api.triggers import TriggerCall
from jobs.selectors.triggers import backfills_with_counts
from jobs.services import backfills


def represent_backfill(backfill: models.Backfill) -> Any:
    return represent(BackfillAnswer, backfills_with_counts([backfill])[0])


class BackfillsView(TriggerCall):
    """`POST /triggers/{id}/backfills`."""

    @extend_schema(
        parameters=[KEY],
        request=BackfillRequest,
        responses={201: BackfillAnswer, 200: BackfillAnswer},
        examples=[EXAMPLE],
    )
    def post(self, request: Request, trigger: UUID) -> Response:
        """Run a trigger for the past slots of a period, some at a time. Slots that fired are left out.

        It works on a paused trigger, ignores its `overlap`, and does not count for `pause_after_failures`.
        """
        given = validate_body(BackfillRequest, request.data)
        begun, is_new = backfills.begin_backfill(
            trigger, given["from"], given["to"], given["max_running"], self.actor, note=given["note"],
            key=idempotency_key(request),
        )  # fmt: skip
        return Response(represent_backfill(begun), status=201 if is_new else 200)


class BackfillView(TriggerCall):
    """`GET /triggers/{id}/backfills/{backfill}`."""

    @extend_schema(responses=BackfillAnswer)
    def get(self, request: Request, trigger: UUID, backfill: UUID) -> Response:
        """Return a backfill with the number of its slots that wait and run."""
        return Response(represent_backfill(backfills.find_backfill(trigger, backfill)))


class StopBackfillView(TriggerCall):
    """`POST /triggers/{id}/backfills/{backfill}/stop`."""

    @extend_schema(request=NoteRequest, responses=BackfillAnswer)
    def post(self, request: Request, trigger: UUID, backfill: UUID) -> Response:
        """Stop a backfill. Its running executions continue, and its other slots are SKIPPED."""
        note = validate_body(NoteRequest, request.data)["note"]
        stopped = backfills.stop_backfill(trigger, backfill, self.actor, note)
        return Response(represent_backfill(stopped))
