"""The calls about batches: an action on many, begun by one call and done on the server; an operator's."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from jobs.api.serializers.batches import (
    EXAMPLES,
    BatchAnswer,
    BatchFilter,
    BatchPage,
    BatchRequest,
    BatchSummary,
    ItemFilter,
)
from jobs.api.serializers.jobs import NoteRequest
from jobs.api.views import KEY, idempotency_key
from jobs.errors import BatchUnknown
from jobs.models import Batch, BatchItem
from jobs.selectors.batches import count_refusals, visible_batches
from jobs.services import batches
from jobs.services.operator_actions import OPERATIONS, SUBJECTS
from liveness.api.access import NamespaceQuery, RoleCall, request_credential
from liveness.models import Role
from liveness.services.action_events import format_actor

DONE_AT_ONCE, REASONS_NAMED = 20, 10
"""Items that the call itself does; the executors do the rest."""


class BatchCall(RoleCall):
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}, "POST": {Role.OPERATOR}}

    @property
    def actor(self) -> str:
        return format_actor(self.token.name)

    @property
    def visible(self) -> QuerySet[Batch]:
        """All; of who does not reach the whole control plane his own."""
        return visible_batches(self.namespaces, self.actor)

    def load_batch(self, batch: UUID) -> Batch:
        row = self.visible.filter(pk=batch).first()
        if row is None:
            raise BatchUnknown
        return row


class Batches(BatchCall):
    """`GET` and `POST /batches`."""

    @extend_schema(operation_id="v1_batches_list", parameters=[BatchFilter], responses=BatchPage)
    def get(self, request: Request) -> Response:
        """Batches, latest first, a page at a time."""
        query = BatchFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(paged(BatchPage, query.page(query.match_rows(self.visible))))

    @extend_schema(
        parameters=[KEY, NamespaceQuery], request=BatchRequest, responses={201: BatchSummary, 200: BatchSummary},
        examples=EXAMPLES,
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Have something done to many: to those with these ids, or to all that a filter of their list matches now.

        It goes on on the server, item by item, each with its own outcome; what does not apply is refused and says why.
        The same Idempotency-Key again answers the batch that it began.
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
        """The ids of what is acted on. Raises ValidationError where there is nothing, or something is not there."""
        subject = OPERATIONS[body.validated_data["operation"]].subject
        rows = self.within_namespaces(SUBJECTS[subject].model._default_manager.all())
        ids: list[Any] = list(
            body.match_rows(rows).order_by("pk").values_list("pk", flat=True)[: batches.MOST_ITEMS + 1]
        )
        if "ids" in body.validated_data:
            if unknown := set(body.validated_data["ids"]) - set(ids):
                named = ", ".join(sorted(map(str, unknown))[:10])
                raise serializers.ValidationError({"ids": [f"There is no {subject} with the id {named}."]})
        elif not ids:
            raise serializers.ValidationError({"filter": [f"No {subject} matches."]})
        elif len(ids) > batches.MOST_ITEMS:
            raise serializers.ValidationError({"filter": [f"More than {batches.MOST_ITEMS:,} match: narrow it."]})
        return ids


class OneBatch(BatchCall):
    """`GET /batches/{id}`."""

    @extend_schema(parameters=[ItemFilter], responses=BatchAnswer)
    def get(self, request: Request, batch: UUID) -> Response:
        """How far a batch has come, and what came of each item, a page at a time."""
        row: Any = self.load_batch(batch)
        query = ItemFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        page = query.page(BatchItem.objects.filter(batch=batch))
        refusals = count_refusals(batch, REASONS_NAMED) if row.refused else []
        row.refusals = [{"reason": reason, "items": items} for reason, items in refusals]
        row.next = page["next"]
        # `items` of the model are all of them.
        return Response(represent(BatchAnswer, OnePage(row, page["items"])))


class OnePage:
    """A batch, of its items one page alone."""

    def __init__(self, batch: Batch, items: list[BatchItem]) -> None:
        self._batch, self.items = batch, items

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


class Stop(BatchCall):
    """`POST /batches/{id}/stop`."""

    @extend_schema(request=NoteRequest, responses=BatchSummary)
    def post(self, request: Request, batch: UUID) -> Response:
        """Begin no other item of a batch: what is done stays done, the rest is left as it is."""
        self.load_batch(batch)
        body: Any = NoteRequest(data=request.data)
        body.is_valid(raise_exception=True)
        batches.stop_batch(batch, self.actor, body.validated_data["note"])
        return Response(represent(BatchSummary, self.load_batch(batch)))
