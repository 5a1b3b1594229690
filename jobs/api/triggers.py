"""API calls about triggers. Operators change them; viewers may only read them."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from controlplane.core.rest import validate_body
from jobs import models
from jobs.api import examples
from jobs.api.idempotency import KEY, idempotency_key
from jobs.api.serializers.jobs import NoteRequest
from jobs.api.serializers.triggers import SlotAnswer, TriggerAnswer, TriggerFilter, TriggerPage, TriggerRequest
from jobs.selectors.triggers import triggers_with_slots
from jobs.services import triggers
from jobs.trigger_errors import TriggerUnknown
from liveness.api.access import NamespaceQuery, RoleCall
from liveness.models import Role
from liveness.services.action_events import format_actor


class TriggerCall(RoleCall):
    roles = {
        "GET": {Role.VIEWER, Role.OPERATOR},
        "POST": {Role.OPERATOR},
        "PATCH": {Role.OPERATOR},
        "DELETE": {Role.OPERATOR},
    }

    def load_trigger(self, trigger: UUID) -> models.Trigger:
        row = triggers_with_slots().filter(pk=trigger).first()
        if row is None:
            raise TriggerUnknown
        return row

    @property
    def actor(self) -> str:
        return format_actor(self.token.name)


class TriggersView(TriggerCall):
    """`GET` and `POST /triggers`."""

    @extend_schema(operation_id="v1_triggers_list", parameters=[TriggerFilter], responses=TriggerPage)
    def get(self, request: Request) -> Response:
        """Return triggers with their last slots, latest first, in pages."""
        query = TriggerFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(paged(TriggerPage, query.page(self.within_namespaces(triggers_with_slots()))))

    @extend_schema(
        parameters=[NamespaceQuery],
        request=TriggerRequest,
        responses={201: TriggerAnswer},
        examples=[examples.TRIGGER],
    )
    def post(self, request: Request) -> Response:
        """Create a trigger. Its first slot is the next one of its schedule."""
        body = TriggerRequest(data=request.data)
        body.is_valid(raise_exception=True)
        note = body.validated_data.pop("note", "")
        created = triggers.create_trigger({**body.validated_data, "namespace": self.namespace}, self.actor, note)
        return Response(represent(TriggerAnswer, self.load_trigger(created.pk)), status=201)


class TriggerView(TriggerCall):
    """`GET`, `PATCH` and `DELETE /triggers/{id}`."""

    @extend_schema(responses=TriggerAnswer)
    def get(self, request: Request, trigger: UUID) -> Response:
        """Return a trigger with its last slots, including missed ones."""
        return Response(represent(TriggerAnswer, self.load_trigger(trigger)))

    @extend_schema(request=TriggerRequest(partial=True), responses=TriggerAnswer)
    def patch(self, request: Request, trigger: UUID) -> Response:
        """Change some fields of a trigger. Its next slot is computed from now."""
        body = TriggerRequest(self.load_trigger(trigger), data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        note = body.validated_data.pop("note", "")
        triggers.change_trigger(trigger, body.validated_data, self.actor, note)
        return Response(represent(TriggerAnswer, self.load_trigger(trigger)))

    @extend_schema(parameters=[NoteRequest], responses={204: None})
    def delete(self, request: Request, trigger: UUID) -> Response:
        """Delete a trigger. The executions that it started stay."""
        query: Any = NoteRequest(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        triggers.delete_trigger(trigger, self.actor, query.validated_data["note"])
        return Response(status=204)


class EvaluateTriggerView(TriggerCall):
    """`POST /triggers/{id}/evaluate`."""

    @extend_schema(parameters=[KEY], request=NoteRequest, responses={201: SlotAnswer, 200: SlotAnswer})
    def post(self, request: Request, trigger: UUID) -> Response:
        """Evaluate a trigger now, independent of its schedule."""
        note = validate_body(NoteRequest, request.data)["note"]
        slot, is_new = triggers.evaluate_trigger(trigger, self.actor, idempotency_key(request), note=note)
        return Response(represent(SlotAnswer, slot), status=201 if is_new else 200)
