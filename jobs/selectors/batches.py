"""Reads of bulk actions for the API and the pages."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import Count, QuerySet

from jobs.models import Batch, BatchItem
from jobs.states import ItemOutcome
from liveness.selectors.namespaces import reaches_instance


def visible_batches(namespaces: Collection[str] | None, actor: str) -> QuerySet[Batch]:
    """All; of who does not reach the whole control plane his own, which have nothing of a namespace beyond his: tokens
    of several namespaces may have one name."""
    if namespaces is None or reaches_instance(namespaces):
        return Batch.objects.all()
    return Batch.objects.filter(actor=actor, namespaces__contained_by=sorted(namespaces))


def count_refusals(batch: UUID, most: int) -> list[tuple[str, int]]:
    """Why items of a batch were refused, and how many for each reason, the most frequent first."""
    refused = BatchItem.objects.filter(batch=batch, outcome=ItemOutcome.REFUSED).order_by()
    counted = refused.values_list("reason").annotate(count=Count("pk")).order_by("-count", "reason")
    return [(str(reason), count) for reason, count in counted[:most]]
