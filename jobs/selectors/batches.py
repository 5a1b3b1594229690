"""Selectors of batches, for the API and the pages."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import Count, QuerySet

from jobs.models import Batch, BatchItem
from jobs.states import ItemOutcome


def visible_batches(namespaces: Collection[str] | None) -> QuerySet[Batch]:
    """Return the batches whose items are all in these namespaces (None: all).

    A person who sees a batch may also stop it.
    """
    return (
        Batch.objects.all()
        if namespaces is None
        else Batch.objects.filter(item_namespaces__contained_by=sorted(namespaces))
    )


def count_refusals(batch: UUID, most: int) -> list[tuple[str, int]]:
    """Return (reason, number of items) for the refused items of a batch, most frequent reason first."""
    refused = BatchItem.objects.filter(batch=batch, outcome=ItemOutcome.REFUSED).order_by()
    counted = refused.values_list("reason").annotate(count=Count("pk")).order_by("-count", "reason")
    return [(str(reason), count) for reason, count in counted[:most]]
