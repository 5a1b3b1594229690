"""API calls about bulk actions: an operator starts an action on many objects, and the control plane processes them."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from controlplane.core.rest import validate_body
from jobs.api import examples
from jobs.api.idempotency import KEY, idempotency_key
from jobs.api.serializers.batches import (
    BatchAnswer,
    BatchFilter,
    BatchPage,
    BatchRequest,
    BatchSummary,
    ItemFilter,
)
from jobs.api.serializers.jobs import NoteRequest
from jobs.errors import BatchUnknown
from jobs.models import Batch, BatchItem
from jobs.selectors.batches import count_refusals, visible_batches
from jobs.services import batches
from jobs.services.operator_actions import OPERATIONS, SUBJECTS
from liveness.api.access import NamespaceQuery, RoleCall, request_credential
from liveness.models import Role
from liveness.services.action_events import format_actor

DONE_AT_ONCE, REASONS_NAMED = 20, 10
"""Number of items that the call itself processes (executors process the rest), and number of reasons in a response."""


class BatchCall(RoleCall):
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}, "POST": {Role.OPERATOR}}

    @property
    def actor(self) -> str:
        return format_actor(self.token.name)

    @property
    def visible(self) -> QuerySet[Batch]:
        return visible_batches(self.namespaces)

    def load_batch(self, batch: UUID) -> Batch:
        row = self.visible.filter(pk=batch).first()
        if row is None:
            raise BatchUnknown
        return row


class BatchesView(BatchCall):
    """`GET` and `POST /batches`."""

    @extend_schema(operation_id="v1_batches_list", parameters=[BatchFilter], responses=BatchPage)
    def get(self, request: Request) -> Response:
        """Return bulk actions, latest first, in pages."""
        query = BatchFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(paged(BatchPage, query.page(query.match_rows(self.visible))))

    @extend_schema(
        parameters=[KEY, NamespaceQuery], request=BatchRequest, responses={201: BatchSummary, 200: BatchSummary},
        examples=examples.BATCHES,
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Start an action on many objects: on those with these ids, or on all that a filter of their list matches now.

        The control plane processes them one by one. Each item has its own outcome; if the action does not apply, it is
        refused with a reason. The same Idempotency-Key returns the same bulk action.
        """
        body = BatchRequest(data=request.data)
        body.is_valid(raise_exception=True)
        given, key = body.validated_data, idempotency_key(request)
        wanted = batches.BatchPlan(
            given["operation"], self.actor, given["note"], body.parameters, chosen=body.chosen, query=body.query,
            namespaces=self.namespaces,
            key=None if key is None else f"{request_credential(request).submitter.pk} {key}",
        )  # fmt: skip
        batch = batches.find_batch(wanted, given.get("ids"))
        is_new = False
        if batch is None:
            batch, is_new = batches.submit_batch(wanted, self.choose_items(body), are_named="ids" in given)
        if is_new:
            batches.run_batch(batch, DONE_AT_ONCE)
        return Response(represent(BatchSummary, Batch.objects.get(pk=batch)), status=201 if is_new else 200)

    def choose_items(self, body: BatchRequest) -> list[UUID]:
        """Return the ids of the objects. Raise ValidationError if none matches, or if an id does not exist."""
        subject = OPERATIONS[body.validated_data["operation"]].subject
        rows = self.within_namespaces(SUBJECTS[subject].model._default_manager.all())
        ids: list[Any] = list(
            body.match_rows(rows).order_by("pk").values_list("pk", flat=True)[: batches.MOST_ITEMS + 1]
        )
        if "ids" in body.validated_data:
            if unknown := set(body.validated_data["ids"]) - set(ids):
                named = ", ".join(sorted(map(str, unknown))[:10])
                raise serializers.ValidationError({"ids": [f"No {subject} has the id {named}."]})
        elif not ids:
            raise serializers.ValidationError({"filter": [f"No {subject} matches the filter."]})
        elif len(ids) > batches.MOST_ITEMS:
            raise serializers.ValidationError(
                {"filter": [f"More than {batches.MOST_ITEMS:,} match; narrow the filter."]}
            )
        return ids


class BatchView(BatchCall):
    """`GET /batches/{id}`."""

    @extend_schema(parameters=[ItemFilter], responses=BatchAnswer)
    def get(self, request: Request, batch: UUID) -> Response:
        """Return the progress of a bulk action and the outcomes of its items, in pages."""
        row: Any = self.load_batch(batch)
        query = ItemFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        page = query.page(BatchItem.objects.filter(batch=batch))
        refusals = count_refusals(batch, REASONS_NAMED) if row.refused else []
        row.refusals = [{"reason": reason, "items": items} for reason, items in refusals]
        row.next = page["next"]
        # OnePage hides the `items` of the model, which are all items.
        return Response(represent(BatchAnswer, OnePage(row, page["items"])))


class OnePage:
    """Bulk action with only one page of its items."""

    def __init__(self, batch: Batch, items: list[BatchItem]) -> None:
        self._batch, self.items = batch, items

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


class StopBatchView(BatchCall):
    """`POST /batches/{id}/stop`."""

    @extend_schema(request=NoteRequest, responses=BatchSummary)
    def post(self, request: Request, batch: UUID) -> Response:
        """Stop a bulk action. Processed items stay as they are, and the rest is not processed."""
        self.load_batch(batch)
        note = validate_body(NoteRequest, request.data)["note"]
        batches.stop_batch(batch, self.actor, note)
        return Response(represent(BatchSummary, self.load_batch(batch)))
