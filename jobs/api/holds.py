"""API calls about holds. Operators create and release them; viewers may only read them."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from controlplane.core.rest import validate_body
from jobs.api.idempotency import KEY, idempotency_key
from jobs.api.serializers.holds import EXAMPLES, HoldAnswer, HoldFilter, HoldPage, HoldRequest
from jobs.api.serializers.jobs import NoteRequest
from jobs.choices import HoldMode, HoldOf
from jobs.errors import HoldUnknown
from jobs.models import Execution, Trigger
from jobs.selectors.holds import holds_in_force, holds_with_parked
from jobs.services import holds
from liveness.api.access import NamespaceQuery, RoleCall
from liveness.errors import WrongNamespace
from liveness.models import Role
from liveness.selectors.namespaces import reaches_instance, rows_within
from liveness.services.action_events import format_actor


class HoldCall(RoleCall):
    roles = {
        "GET": {Role.VIEWER, Role.OPERATOR},
        "POST": {Role.OPERATOR},
        "DELETE": {Role.OPERATOR},
    }

    @property
    def scope(self) -> Collection[str] | None:
        """Return the namespaces whose holds the caller reaches. None means all, as for a caller of `default`."""
        is_all = reaches_instance(self.namespaces) and "namespace" not in self.request.query_params
        return None if is_all else self.namespaces

    @property
    def actor(self) -> str:
        return format_actor(self.token.name)


class HoldsView(HoldCall):
    """`GET` and `POST /holds`."""

    @extend_schema(operation_id="v1_holds_list", parameters=[HoldFilter], responses=HoldPage)
    def get(self, request: Request) -> Response:
        """Return the holds that have not ended, latest first, in pages."""
        query = HoldFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        page = query.page(holds_in_force(self.scope))
        return Response(paged(HoldPage, {**page, "items": holds_with_parked(page["items"])}))

    @extend_schema(
        parameters=[KEY, NamespaceQuery],
        request=HoldRequest,
        responses={201: HoldAnswer, 200: HoldAnswer},
        examples=EXAMPLES,
    )
    def post(self, request: Request) -> Response:
        """Hold work: nothing that the hold covers starts until it is released. Running work continues.

        A hold of a caller of the namespace `default` counts for all namespaces, unless the query names one.
        """
        given = validate_body(HoldRequest, request.data)
        kind, value = given["of"]
        self.refuse_out_of_reach(kind, value)
        created, is_new = holds.create_hold(
            kind,
            value,
            self.actor,
            given["note"],
            mode=HoldMode(given["mode"]),
            seconds=given.get("duration_seconds"),
            namespace=None if self.scope is None else self.namespace,
            key=idempotency_key(request),
        )
        [row] = holds_with_parked([created])
        return Response(represent(HoldAnswer, row), status=201 if is_new else 200)

    def refuse_out_of_reach(self, kind: HoldOf, value: str) -> None:
        """Raise ValidationError or WrongNamespace if the caller does not reach what is to be held."""
        if kind == HoldOf.NAMESPACE and self.scope is not None and value not in self.scope:
            raise WrongNamespace(f"The caller has no access to the namespace {value}.")
        models = {HoldOf.EXECUTION: Execution.objects.all(), HoldOf.TRIGGER: Trigger.objects.all()}
        if kind in models and not rows_within(self.scope, models[kind].filter(pk=value)).exists():
            raise serializers.ValidationError({"of": [f"No {kind} has the id {value}."]})


class HoldView(HoldCall):
    """`GET` and `DELETE /holds/{id}`."""

    @extend_schema(responses=HoldAnswer)
    def get(self, request: Request, hold: UUID) -> Response:
        """Return a hold that has not ended."""
        found = holds_with_parked(holds_in_force(self.scope).filter(pk=hold))
        if not found:
            raise HoldUnknown
        return Response(represent(HoldAnswer, found[0]))

    @extend_schema(parameters=[NoteRequest], responses={204: None})
    def delete(self, request: Request, hold: UUID) -> Response:
        """Release a hold. What it held starts again, in the order in which it would have been claimed."""
        query: Any = NoteRequest(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        holds.release_hold(hold, self.actor, query.validated_data["note"], self.scope)
        return Response(status=204)
